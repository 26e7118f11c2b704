#include "weights/convert_stripe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "weights/bf16/bf16.h"
#include "weights/fp8/fp8.h"
#include "weights/mxfp4/mxfp4.h"

namespace rose {
namespace {

std::int64_t tiles(std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; }

}  // namespace

// Rows [row, row + rows) of the slice of one expert. Stored mxfp4 stays codes and scales; the rest becomes floats.
struct StripeConverter::Stripe {
  std::int64_t expert = 0;  // within the slice
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::vector<std::uint8_t> codes;   // [rows, in / 2]
  std::vector<std::uint8_t> scales;  // [rows, in / 32]
  std::vector<float> values;         // [rows, in]
};

StripeConverter::StripeConverter(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice,
                                 const Weight& to, bool allow_inexact)
    : stored_(stored), spec_(spec), slice_(slice), to_(to), allow_inexact_(allow_inexact) {
  stripe_rows_ = stored.transposed ? to.out : std::min(kFp8Tile, to.out);
  stripes_ = (to.out + stripe_rows_ - 1) / stripe_rows_;
}

std::size_t StripeConverter::jobs() const { return static_cast<std::size_t>(to_.experts * stripes_); }

StripeConverter::Stripe StripeConverter::stripe_of(std::size_t job) const {
  Stripe stripe;
  stripe.expert = static_cast<std::int64_t>(job) / stripes_;
  stripe.row = static_cast<std::int64_t>(job) % stripes_ * stripe_rows_;
  stripe.rows = std::min(stripe_rows_, to_.out - stripe.row);
  return stripe;
}

StripeConverter::Extent StripeConverter::extent(std::size_t job) const {
  const Stripe stripe = stripe_of(job);
  const auto first = static_cast<std::uint64_t>(stripe.expert * to_.out + stripe.row);
  const auto rows = static_cast<std::uint64_t>(stripe.rows);
  const std::uint64_t payload_row = weight_sizes(to_.format, 0, 1, to_.in).payload;
  Extent extent{.payload = first * payload_row, .payload_bytes = rows * payload_row};
  if (to_.format == WeightFormat::kMxfp4) {
    const std::uint64_t scale_row = weight_sizes(to_.format, 0, 1, to_.in).scales;
    extent.scales = first * scale_row;
    extent.scale_bytes = rows * scale_row;
  }
  if (to_.format == WeightFormat::kFp8) {  // a stripe begins at a tile
    const std::int64_t tile_rows = tiles(to_.out), row_bytes = tiles(to_.in) * std::int64_t{sizeof(float)};
    extent.scales = static_cast<std::size_t>((stripe.expert * tile_rows + stripe.row / kFp8Tile) * row_bytes);
    extent.scale_bytes = static_cast<std::size_t>(tiles(stripe.rows) * row_bytes);
  }
  return extent;
}

TileReport StripeConverter::run(std::size_t job, std::byte* payload, std::byte* scales) const {
  Stripe stripe = stripe_of(job);
  if (stored_.format == WeightFormat::kMxfp4) {
    read_mxfp4(stripe);
  } else {
    read_floats(stripe);
  }
  TileReport report;
  switch (to_.format) {
    case WeightFormat::kBf16:
      write_bf16(stripe, reinterpret_cast<Bf16*>(payload));
      break;
    case WeightFormat::kFp8:
      write_fp8(stripe, reinterpret_cast<F8E4M3*>(payload), reinterpret_cast<float*>(scales), report);
      break;
    case WeightFormat::kMxfp4:
      write_mxfp4(stripe, reinterpret_cast<std::uint8_t*>(payload), reinterpret_cast<std::uint8_t*>(scales));
      break;
  }
  return report;
}

std::string StripeConverter::place(const Stripe& stripe) const {
  return fmt::format("{} expert {}", spec_.name, slice_.experts.begin + stripe.expert);
}

void StripeConverter::read_rows(const StoredRange& from, std::int64_t stored_row, std::int64_t rows,
                                std::size_t row_bytes, std::size_t skip, std::size_t take, void* to) const {
  std::vector<std::byte> whole(static_cast<std::size_t>(rows) * row_bytes);
  from.bytes->read(from.offset + static_cast<std::uint64_t>(stored_row) * row_bytes, whole.size(), whole.data());
  auto* out = static_cast<std::byte*>(to);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(out + static_cast<std::size_t>(r) * take, whole.data() + static_cast<std::size_t>(r) * row_bytes + skip,
                take);
  }
}

void StripeConverter::read_mxfp4(Stripe& stripe) const {
  const StoredPart& part = stored_.parts.front();
  const std::int64_t first =
      (slice_.experts.begin + stripe.expert) * spec_.out + slice_.rows.front().begin + stripe.row;
  const auto sized = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  const std::int64_t groups = to_.in / kMxfp4Group;
  stripe.codes.resize(sized(stripe.rows * to_.in / 2));
  stripe.scales.resize(sized(stripe.rows * groups));
  read_rows(part.payload, first, stripe.rows, sized(spec_.in / 2), sized(slice_.columns.begin / 2), sized(to_.in / 2),
            stripe.codes.data());
  read_rows(part.scales, first, stripe.rows, sized(spec_.in / kMxfp4Group), sized(slice_.columns.begin / kMxfp4Group),
            sized(groups), stripe.scales.data());
  const auto nan = std::find(stripe.scales.begin(), stripe.scales.end(), mxfp4::kScaleNan);
  if (nan != stripe.scales.end()) {
    const std::int64_t at = nan - stripe.scales.begin();
    throw StartError(fmt::format("{}: the scale of expert {}, row {}, group {} is byte 255 (NaN)",
                                 part.scales.bytes->name(), slice_.experts.begin + stripe.expert,
                                 slice_.rows.front().begin + stripe.row + at / groups,
                                 slice_.columns.begin / kMxfp4Group + at % groups));
  }
}

void StripeConverter::read_floats(Stripe& stripe) const {
  const StoredPart& part = stored_.parts.front();
  const std::int64_t expert = slice_.experts.begin + stripe.expert;
  const std::int64_t first_row = slice_.rows.front().begin + stripe.row;
  const auto sized = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  stripe.values.resize(sized(stripe.rows * to_.in));
  if (stored_.format == WeightFormat::kFp8) {
    const std::int64_t tile_columns = (spec_.in + kFp8Tile - 1) / kFp8Tile;
    const std::int64_t tile_rows = (spec_.out + kFp8Tile - 1) / kFp8Tile;
    const std::int64_t tile_first = first_row / kFp8Tile;
    const std::int64_t tiles_down = (first_row + stripe.rows - 1) / kFp8Tile + 1 - tile_first;
    std::vector<F8E4M3> payload(sized(stripe.rows * to_.in));
    std::vector<float> scales(sized(tiles_down * tile_columns));
    read_rows(part.payload, expert * spec_.out + first_row, stripe.rows, sized(spec_.in), sized(slice_.columns.begin),
              sized(to_.in), payload.data());
    const std::size_t scale_row = sized(tile_columns) * sizeof(float);
    read_rows(part.scales, expert * tile_rows + tile_first, tiles_down, scale_row, 0, scale_row, scales.data());
    for (std::int64_t r = 0; r < stripe.rows; ++r) {
      const std::int64_t tile = (first_row + r) / kFp8Tile - tile_first;
      fp8::decode_row(payload.data() + r * to_.in, scales.data() + tile * tile_columns, slice_.columns.begin, to_.in,
                      stripe.values.data() + r * to_.in);
    }
  } else {
    std::vector<Bf16> rows(sized(stripe.rows * to_.in));
    if (stored_.transposed) {  // stored [in, out]: rows of the file are columns of the weight
      std::vector<Bf16> columns(rows.size());
      read_rows(part.payload, expert * spec_.in + slice_.columns.begin, to_.in, sized(spec_.out) * sizeof(Bf16),
                sized(first_row) * sizeof(Bf16), sized(stripe.rows) * sizeof(Bf16), columns.data());
      bf16::transpose(columns.data(), to_.in, stripe.rows, rows.data());
    } else {
      read_rows(part.payload, expert * spec_.out + first_row, stripe.rows, sized(spec_.in) * sizeof(Bf16),
                sized(slice_.columns.begin) * sizeof(Bf16), sized(to_.in) * sizeof(Bf16), rows.data());
    }
    bf16::decode_row(rows.data(), stripe.rows * to_.in, stripe.values.data());
  }
  if (!std::all_of(stripe.values.begin(), stripe.values.end(), [](float value) { return std::isfinite(value); })) {
    throw StartError(fmt::format("{}: {} holds a value that is not finite", part.payload.bytes->name(), place(stripe)));
  }
}

void StripeConverter::write_bf16(const Stripe& stripe, Bf16* to) const {
  bool exact = true;
  if (stored_.format != WeightFormat::kMxfp4) {
    exact = bf16::encode_row(stripe.values.data(), stripe.rows * to_.in, to);
  } else {
    const std::int64_t groups = to_.in / kMxfp4Group;
    for (std::int64_t r = 0; r < stripe.rows; ++r) {
      exact = mxfp4::to_bf16_row(stripe.codes.data() + r * to_.in / 2, stripe.scales.data() + r * groups, to_.in,
                                 to + r * to_.in) &&
              exact;
    }
  }
  if (!exact) throw StartError(fmt::format("{} holds a value beyond bf16", place(stripe)));
}

void StripeConverter::write_mxfp4(const Stripe& stripe, std::uint8_t* payload, std::uint8_t* scales) const {
  const std::int64_t groups = to_.in / kMxfp4Group;
  for (std::int64_t r = 0; r < stripe.rows; ++r) {
    mxfp4::encode_row(stripe.values.data() + r * to_.in, to_.in, payload + r * to_.in / 2, scales + r * groups);
  }
}

void StripeConverter::write_fp8(const Stripe& stripe, F8E4M3* payload, float* scales, TileReport& report) const {
  const std::int64_t tile_columns = tiles(to_.in);
  const std::int64_t groups = to_.in / kMxfp4Group;
  // Rounding is what is asked for when the stored values were never on the grid.
  const bool must_be_exact =
      stored_.format == WeightFormat::kMxfp4 || (stored_.format == WeightFormat::kFp8 && stored_.exact_fp8);
  for (std::int64_t row = 0; row < stripe.rows; row += kFp8Tile) {
    for (std::int64_t tile = 0; tile < tile_columns; ++tile) {
      const std::int64_t column = tile * kFp8Tile;
      const std::int64_t rows = std::min(kFp8Tile, stripe.rows - row);
      const std::int64_t columns = std::min(kFp8Tile, to_.in - column);
      const std::int64_t tile_row = (stripe.row + row) / kFp8Tile;
      F8E4M3* codes = payload + row * to_.in + column;
      float* scale = scales + row / kFp8Tile * tile_columns + tile;
      fp8::TileOutcome outcome;
      if (stored_.format == WeightFormat::kMxfp4) {
        outcome = fp8::encode_tile_mxfp4(stripe.codes.data() + (row * to_.in + column) / 2, to_.in / 2,
                                         stripe.scales.data() + row * groups + column / kMxfp4Group, groups, rows,
                                         columns, codes, to_.in, scale);
      } else {
        outcome.exact =
            fp8::encode_tile(stripe.values.data() + row * to_.in + column, to_.in, rows, columns, codes, to_.in, scale);
      }
      ++report.tiles;
      if (outcome.spread >= 0) ++report.spread[static_cast<std::size_t>(outcome.spread)];
      if (outcome.exact) continue;
      ++report.inexact;
      if (!must_be_exact) continue;
      const std::string text =
          fmt::format("{} tile ({}, {}): {}", place(stripe), tile_row, tile,
                      outcome.spread >= 0 ? fmt::format("group exponents span {}", outcome.spread)
                                          : std::string("the plan cuts through the file's FP8 tiles"));
      if (report.first_inexact.empty()) report.first_inexact = text;
      if (!allow_inexact_) {
        throw StartError(
            fmt::format("{}: its values do not all fit FP8 exactly. Use mxfp4 experts, or make a file with "
                        "`rose convert --experts fp8 --allow-inexact`",
                        text));
      }
    }
  }
}

}  // namespace rose
