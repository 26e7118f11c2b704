#include "weights/stored.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "weights/convert_stripe.h"
#include "weights/threads.h"

namespace rose {
namespace {

constexpr std::size_t kCopyBytes = 8u << 20;  // one job: long enough to be a sequential read, short enough to share

// Rows of one stored tensor, of which a run of bytes is taken from each.
struct Copy {
  const StoredRange* from = nullptr;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  std::size_t row_bytes = 0;  // as stored
  std::size_t skip = 0;
  std::size_t take = 0;
  std::byte* to = nullptr;  // [rows, take]
};

// Splits into jobs of about kCopyBytes of reading.
void push_split(std::vector<Copy>& copies, Copy whole) {
  const std::uint64_t rows_each = std::max<std::uint64_t>(1, kCopyBytes / whole.row_bytes);
  for (std::uint64_t row = 0; row < whole.rows; row += rows_each) {
    Copy copy = whole;
    copy.first_row = whole.first_row + row;
    copy.rows = std::min(rows_each, whole.rows - row);
    copy.to = whole.to + row * whole.take;
    copies.push_back(copy);
  }
}

void run_copy(const Copy& copy) {
  if (copy.take == copy.row_bytes) {
    copy.from->bytes->read(copy.from->offset + copy.first_row * copy.row_bytes,
                           static_cast<std::size_t>(copy.rows) * copy.row_bytes, copy.to);
    return;
  }
  // Whole rows are read and cut here: the file is read front to back, and a row is a few disk sectors at most.
  const std::uint64_t rows_each = std::clamp<std::uint64_t>((1u << 20) / copy.row_bytes, 1, copy.rows);
  std::vector<std::byte> stripe(static_cast<std::size_t>(rows_each) * copy.row_bytes);
  for (std::uint64_t row = 0; row < copy.rows; row += rows_each) {
    const std::uint64_t rows = std::min(rows_each, copy.rows - row);
    copy.from->bytes->read(copy.from->offset + (copy.first_row + row) * copy.row_bytes,
                           static_cast<std::size_t>(rows) * copy.row_bytes, stripe.data());
    for (std::uint64_t r = 0; r < rows; ++r) {
      std::memcpy(copy.to + (row + r) * copy.take, stripe.data() + r * copy.row_bytes + copy.skip, copy.take);
    }
  }
}

class SliceLoader {
 public:
  SliceLoader(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, WeightFormat format,
              Arena& arena, const SourceOptions& options)
      : stored_(stored), spec_(spec), slice_(slice), arena_(arena), options_(options) {
    CHECK(arena.device().is_cpu(), "weights load into host memory, not {}", arena.device().name());
    CHECK(stored.parts.size() == spec.parts.size() && slice.rows.size() == spec.parts.size(), "{}", spec.name);
    weight_.format = spec.kind == WeightKind::kExperts ? format : WeightFormat::kBf16;
    weight_.experts = slice.experts.size();
    weight_.out = slice.out();
    weight_.in = slice.columns.size();
  }

  Weight load() {
    const bool same =
        weight_.format == stored_.format && !stored_.transposed && (weight_.format != WeightFormat::kFp8 || whole());
    if (same && options_.map && whole() && map()) return weight_;
    allocate();
    if (same) {
      copy_payload();
    } else {
      convert();
    }
    copy_bias();
    for_each_index(copies_.size(), options_.threads, [&](std::size_t i) { run_copy(copies_[i]); });
    check_scales();
    return weight_;
  }

 private:
  bool whole() const { return weight_.experts == spec_.experts && weight_.out == spec_.out && weight_.in == spec_.in; }

  struct Sizes {
    std::int64_t rows, columns;
  };

  // Shapes with the leading [experts] where there is one.
  Tensor shaped(void* pointer, DType dtype, Sizes sizes) const {
    if (spec_.kind == WeightKind::kVector) return {pointer, dtype, arena_.device(), {sizes.rows}};
    if (weight_.experts == 0) return {pointer, dtype, arena_.device(), {sizes.rows, sizes.columns}};
    return {pointer, dtype, arena_.device(), {weight_.experts, sizes.rows, sizes.columns}};
  }
  Tensor shaped_bias(void* pointer) const {
    if (weight_.experts == 0) return {pointer, DType::kBf16, arena_.device(), {weight_.out}};
    return {pointer, DType::kBf16, arena_.device(), {weight_.experts, weight_.out}};
  }
  Tensor shaped_payload(void* pointer) const {
    switch (weight_.format) {
      case WeightFormat::kBf16:
        return shaped(pointer, DType::kBf16, {weight_.out, weight_.in});
      case WeightFormat::kFp8:
        return shaped(pointer, DType::kF8E4M3, {weight_.out, weight_.in});
      case WeightFormat::kMxfp4:
        return shaped(pointer, DType::kU8, {weight_.out, weight_.in / 2});
    }
    return {};
  }
  Tensor shaped_scales(void* pointer) const {
    const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
    switch (weight_.format) {
      case WeightFormat::kBf16:
        return {};
      case WeightFormat::kFp8:
        return shaped(pointer, DType::kF32, {tiles(weight_.out), tiles(weight_.in)});
      case WeightFormat::kMxfp4:
        return shaped(pointer, DType::kU8, {weight_.out, weight_.in / kMxfp4Group});
    }
    return {};
  }

  void allocate() {
    const WeightSizes sizes = weight_sizes(weight_.format, weight_.experts, weight_.out, weight_.in);
    weight_.payload = shaped_payload(arena_.take(spec_.name, sizes.payload));
    if (sizes.scales > 0) weight_.scales = shaped_scales(arena_.take(spec_.name + ".scales", sizes.scales));
    if (slice_.holds_bias) {
      const WeightSizes bias = weight_sizes(WeightFormat::kBf16, weight_.experts, weight_.out, 1);
      weight_.bias = shaped_bias(arena_.take(spec_.name + ".bias", bias.payload));
    }
  }

  // The weight where it lies, if all of it lies mapped. Mapped memory is read-only: nothing writes to weights.
  bool map() {
    if (stored_.parts.size() != 1 && spec_.kind != WeightKind::kMatrix) return false;
    const auto whole_at = [](const StoredRange& range) -> void* {
      const std::byte* bytes = range.bytes == nullptr ? nullptr : range.bytes->mapped();
      return bytes == nullptr ? nullptr : const_cast<std::byte*>(bytes + range.offset);
    };
    const StoredPart& first = stored_.parts.front();
    void* payload = whole_at(first.payload);
    void* scales = whole_at(first.scales);
    void* bias = whole_at(first.bias);
    for (const StoredPart& part : stored_.parts) {  // several parts: one stored tensor must hold them all, in order
      if (part.payload.bytes != first.payload.bytes || part.bias.bytes != first.bias.bytes) return false;
    }
    if (payload == nullptr || first.payload.offset != 0 || (slice_.holds_bias && bias == nullptr)) return false;
    if (weight_.format != WeightFormat::kBf16 && scales == nullptr) return false;
    weight_.payload = shaped_payload(payload);
    if (scales != nullptr) weight_.scales = shaped_scales(scales);
    if (slice_.holds_bias) weight_.bias = shaped_bias(bias);
    check_scales();
    return true;
  }

  // The slice of one stored matrix [experts,] rows x row_bytes.
  void copy_matrix(const StoredRange& from, std::int64_t stored_rows, ShardRange rows, std::size_t row_bytes,
                   std::size_t skip, std::size_t take, std::byte* to) {
    Copy copy{.from = &from, .row_bytes = row_bytes, .skip = skip, .take = take, .to = to};
    const std::int64_t experts = std::max<std::int64_t>(1, weight_.experts);
    if (rows.size() == stored_rows) {
      copy.first_row = static_cast<std::uint64_t>(slice_.experts.begin * stored_rows);
      copy.rows = static_cast<std::uint64_t>(experts * stored_rows);
      push_split(copies_, copy);
      return;
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      copy.first_row = static_cast<std::uint64_t>((slice_.experts.begin + e) * stored_rows + rows.begin);
      copy.rows = static_cast<std::uint64_t>(rows.size());
      copy.to = to + static_cast<std::size_t>(e * rows.size()) * take;
      push_split(copies_, copy);
    }
  }

  void copy_payload() {
    // Bytes of one row of a matrix `columns` wide, payload and scales.
    const auto row_bytes = [&](std::int64_t columns) { return weight_sizes(weight_.format, 0, 1, columns); };
    if (weight_.format == WeightFormat::kFp8) {  // whole: tiles are not rows, so both tensors are taken as they are
      const auto take_all = [&](const StoredRange& from, const Tensor& to) {
        push_split(
            copies_,
            {.from = &from, .rows = to.bytes(), .row_bytes = 1, .take = 1, .to = static_cast<std::byte*>(to.raw())});
      };
      take_all(stored_.parts.front().payload, weight_.payload);
      take_all(stored_.parts.front().scales, weight_.scales);
      return;
    }
    const WeightSizes full = row_bytes(spec_.in);
    const WeightSizes skip = row_bytes(slice_.columns.begin);
    const WeightSizes take = row_bytes(weight_.in);
    std::int64_t rows_before = 0;
    for (std::size_t p = 0; p < stored_.parts.size(); ++p) {
      const StoredPart& part = stored_.parts[p];
      const ShardRange rows = slice_.rows[p];
      copy_matrix(
          part.payload, spec_.parts[p].rows, rows, full.payload, skip.payload, take.payload,
          static_cast<std::byte*>(weight_.payload.raw()) + static_cast<std::size_t>(rows_before) * take.payload);
      if (full.scales > 0) {
        copy_matrix(
            part.scales, spec_.parts[p].rows, rows, full.scales, skip.scales, take.scales,
            static_cast<std::byte*>(weight_.scales.raw()) + static_cast<std::size_t>(rows_before) * take.scales);
      }
      rows_before += rows.size();
    }
  }

  void copy_bias() {
    if (!slice_.holds_bias) return;
    auto* to = static_cast<std::byte*>(weight_.bias.raw());
    const std::size_t experts = static_cast<std::size_t>(std::max<std::int64_t>(1, weight_.experts));
    for (std::size_t p = 0; p < stored_.parts.size(); ++p) {
      const ShardRange rows = slice_.rows[p];
      const std::size_t take = static_cast<std::size_t>(rows.size()) * sizeof(Bf16);
      push_split(copies_, {.from = &stored_.parts[p].bias,
                           .first_row = static_cast<std::uint64_t>(slice_.experts.begin),
                           .rows = experts,
                           .row_bytes = static_cast<std::size_t>(spec_.parts[p].rows) * sizeof(Bf16),
                           .skip = static_cast<std::size_t>(rows.begin) * sizeof(Bf16),
                           .take = take,
                           .to = to});
      to += take * experts;
    }
  }

  void convert() {
    CHECK(spec_.kind == WeightKind::kExperts && stored_.parts.size() == 1, "{}", spec_.name);
    const StripeConverter converter(stored_, spec_, slice_, weight_, options_.allow_inexact);
    std::mutex mutex;
    for_each_index(converter.jobs(), options_.threads, [&](std::size_t job) {
      const TileReport report = converter.run(job);
      if (options_.report != nullptr) {
        const std::lock_guard lock(mutex);
        options_.report->add(report);
      }
    });
  }

  // 255 is NaN: a group of NaNs would poison every token that meets its expert.
  void check_scales() const {
    if (weight_.format != WeightFormat::kMxfp4) return;
    const void* found = std::memchr(weight_.scales.raw(), 0xff, weight_.scales.bytes());
    if (found == nullptr) return;
    const auto at = static_cast<const std::uint8_t*>(found) - weight_.scales.as<std::uint8_t>();
    const std::int64_t groups = weight_.in / kMxfp4Group;
    throw StartError(fmt::format(
        "{}: the scale of expert {}, row {}, group {} is byte 255 (NaN)", stored_.parts.front().scales.bytes->name(),
        slice_.experts.begin + at / (weight_.out * groups), slice_.rows.front().begin + at / groups % weight_.out,
        slice_.columns.begin / kMxfp4Group + at % groups));
  }

  const StoredWeight& stored_;
  const WeightSpec& spec_;
  const WeightSlice& slice_;
  Arena& arena_;
  const SourceOptions& options_;
  Weight weight_;
  std::vector<Copy> copies_;
};

}  // namespace

void TileReport::add(const TileReport& other) {
  tiles += other.tiles;
  inexact += other.inexact;
  for (std::size_t i = 0; i < spread.size(); ++i) spread[i] += other.spread[i];
  if (first_inexact.empty()) first_inexact = other.first_inexact;
}

Weight load_slice(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, WeightFormat format,
                  Arena& arena, const SourceOptions& options) {
  return SliceLoader(stored, spec, slice, format, arena, options).load();
}

}  // namespace rose
