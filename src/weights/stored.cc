#include "weights/stored.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "weights/convert_stripe.h"
#include "weights/threads.h"

namespace rose {
namespace {

// One job: long enough to be a sequential read, short enough to share. A multiple of a rose file's chunk.
constexpr std::size_t kCopyBytes = 8u << 20;

// Rows of one stored tensor, of which a run of bytes is taken from each.
struct Copy {
  const StoredBytes* from = nullptr;
  std::uint64_t offset = 0;  // of the first row
  std::uint64_t rows = 0;
  std::size_t row_bytes = 0;  // as stored
  std::size_t skip = 0;
  std::size_t take = 0;
  std::byte* to = nullptr;  // [rows, take]
  bool scales = false;      // e8m0

  std::size_t bytes() const { return static_cast<std::size_t>(rows) * take; }
};

// Splits into jobs of about job_bytes of reading; none gives more than that.
void push_split(std::vector<Copy>& copies, const Copy& whole, std::size_t job_bytes) {
  const auto push = [&](std::uint64_t row, std::uint64_t rows, std::size_t row_bytes, std::size_t skip,
                        std::size_t take, std::size_t at) {
    Copy copy = whole;
    copy.offset = whole.offset + row * whole.row_bytes;
    copy.rows = rows;
    copy.row_bytes = row_bytes;
    copy.skip = skip;
    copy.take = take;
    copy.to = whole.to + at;
    copies.push_back(copy);
  };
  if (whole.take == whole.row_bytes) {
    // One run: jobs end where the file's chunks end, so that a chunk is hashed where its bytes are wanted.
    const std::size_t bytes = whole.bytes();
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t part = std::min<std::uint64_t>(bytes - at, job_bytes - (whole.offset + at) % job_bytes);
      push(0, 1, bytes, at, part, at);
      at += part;
    }
    return;
  }
  const std::uint64_t rows_each = std::max<std::uint64_t>(1, job_bytes / whole.row_bytes);
  for (std::uint64_t row = 0; row < whole.rows; row += rows_each) {
    const std::uint64_t rows = std::min(rows_each, whole.rows - row);
    for (std::size_t at = 0; at < whole.take;) {  // more than once only where a row is more than a job
      const std::size_t part = rows == 1 ? std::min(job_bytes, whole.take - at) : whole.take;
      push(row, rows, whole.row_bytes, whole.skip + at, part, static_cast<std::size_t>(row) * whole.take + at);
      at += part;
    }
  }
}

void run_copy(const Copy& copy, std::byte* to) {
  if (copy.rows == 1) return copy.from->read(copy.offset + copy.skip, copy.take, to);
  // Whole rows are read and cut here: the file is read front to back, and a row is a few disk sectors at most.
  const std::uint64_t rows_each = std::clamp<std::uint64_t>((1u << 20) / copy.row_bytes, 1, copy.rows);
  std::vector<std::byte> stripe(static_cast<std::size_t>(rows_each) * copy.row_bytes);
  for (std::uint64_t row = 0; row < copy.rows; row += rows_each) {
    const std::uint64_t rows = std::min(rows_each, copy.rows - row);
    copy.from->read(copy.offset + row * copy.row_bytes, static_cast<std::size_t>(rows) * copy.row_bytes, stripe.data());
    for (std::uint64_t r = 0; r < rows; ++r) {
      std::memcpy(to + (row + r) * copy.take, stripe.data() + r * copy.row_bytes + copy.skip, copy.take);
    }
  }
}

class SliceLoader {
 public:
  SliceLoader(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, WeightFormat format,
              Arena& arena, const Delivery& delivery, const SourceOptions& options)
      : stored_(stored),
        spec_(spec),
        slice_(slice),
        arena_(arena),
        delivery_(delivery),
        options_(options),
        job_bytes_(std::min(kCopyBytes, delivery.most())) {
    CHECK(arena.device().is_cpu() || !delivery.in_place(), "{} cannot be written in place", arena.device().name());
    CHECK(stored.parts.size() == spec.parts.size() && slice.rows.size() == spec.parts.size(), "{}", spec.name);
    weight_.format = spec.kind == WeightKind::kExperts ? format : WeightFormat::kBf16;
    weight_.experts = slice.experts.size();
    weight_.out = slice.out();
    weight_.in = slice.columns.size();
  }

  Weight load() {
    const bool same =
        weight_.format == stored_.format && !stored_.transposed && (weight_.format != WeightFormat::kFp8 || whole());
    if (same && options_.map && delivery_.in_place() && whole() && map()) return weight_;
    weight_ = allocate_weight(spec_, slice_, weight_.format, arena_);
    if (same) {
      copy_payload();
    } else {
      convert();
    }
    copy_bias();
    for_each_index(copies_.size(), options_.threads, [&](std::size_t i) {
      const Copy& copy = copies_[i];
      delivery_.put(copy.to, copy.bytes(), [&](std::byte* where) {
        run_copy(copy, where);
        if (copy.scales) check_scales(where, copy.bytes(), copy.to);
      });
    });
    return weight_;
  }

 private:
  bool whole() const { return weight_.experts == spec_.experts && weight_.out == spec_.out && weight_.in == spec_.in; }

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
    weight_ = weight_over(spec_, slice_, weight_.format, arena_.device(), {payload, scales, bias});
    if (weight_.format == WeightFormat::kMxfp4) {
      const auto* bytes = static_cast<const std::byte*>(scales);
      check_scales(bytes, weight_.scales.bytes(), bytes);
    }
    return true;
  }

  // The slice of one stored matrix [experts,] rows x row_bytes; `copy` says what is taken of a row, and where to.
  void copy_matrix(const StoredRange& from, std::int64_t stored_rows, ShardRange rows, Copy copy) {
    const std::int64_t experts = std::max<std::int64_t>(1, weight_.experts);
    const auto offset_of = [&](std::int64_t row) {
      return from.offset + static_cast<std::uint64_t>(row) * copy.row_bytes;
    };
    copy.from = from.bytes.get();
    if (rows.size() == stored_rows) {
      copy.offset = offset_of(slice_.experts.begin * stored_rows);
      copy.rows = static_cast<std::uint64_t>(experts * stored_rows);
      push_split(copies_, copy, job_bytes_);
      return;
    }
    copy.rows = static_cast<std::uint64_t>(rows.size());
    for (std::int64_t e = 0; e < experts; ++e) {
      copy.offset = offset_of((slice_.experts.begin + e) * stored_rows + rows.begin);
      push_split(copies_, copy, job_bytes_);
      copy.to += copy.bytes();
    }
  }

  void copy_payload() {
    // Bytes of one row of a matrix `columns` wide, payload and scales.
    const auto row_bytes = [&](std::int64_t columns) { return weight_sizes(weight_.format, 0, 1, columns); };
    if (weight_.format == WeightFormat::kFp8) {  // whole: tiles are not rows, so both tensors are taken as they are
      const auto take_all = [&](const StoredRange& from, const Tensor& to) {
        push_split(copies_,
                   {.from = from.bytes.get(),
                    .offset = from.offset,
                    .rows = 1,
                    .row_bytes = to.bytes(),
                    .take = to.bytes(),
                    .to = static_cast<std::byte*>(to.raw())},
                   job_bytes_);
      };
      take_all(stored_.parts.front().payload, weight_.payload);
      take_all(stored_.parts.front().scales, weight_.scales);
      return;
    }
    const WeightSizes full = row_bytes(spec_.in);
    const WeightSizes skip = row_bytes(slice_.columns.begin);
    const WeightSizes take = row_bytes(weight_.in);
    auto* payload = static_cast<std::byte*>(weight_.payload.raw());
    auto* scales = static_cast<std::byte*>(weight_.scales.raw());
    for (std::size_t p = 0; p < stored_.parts.size(); ++p) {
      const StoredPart& part = stored_.parts[p];
      const ShardRange rows = slice_.rows[p];
      const std::int64_t stored_rows = spec_.parts[p].rows;
      copy_matrix(part.payload, stored_rows, rows,
                  {.row_bytes = full.payload, .skip = skip.payload, .take = take.payload, .to = payload});
      payload += static_cast<std::size_t>(rows.size()) * take.payload;
      if (full.scales == 0) continue;
      copy_matrix(part.scales, stored_rows, rows,
                  {.row_bytes = full.scales, .skip = skip.scales, .take = take.scales, .to = scales, .scales = true});
      scales += static_cast<std::size_t>(rows.size()) * take.scales;
    }
  }

  void copy_bias() {
    if (!slice_.holds_bias) return;
    auto* to = static_cast<std::byte*>(weight_.bias.raw());
    const std::size_t experts = static_cast<std::size_t>(std::max<std::int64_t>(1, weight_.experts));
    for (std::size_t p = 0; p < stored_.parts.size(); ++p) {
      const ShardRange rows = slice_.rows[p];
      const std::size_t take = static_cast<std::size_t>(rows.size()) * sizeof(Bf16);
      const StoredRange& bias = stored_.parts[p].bias;
      const std::size_t row_bytes = static_cast<std::size_t>(spec_.parts[p].rows) * sizeof(Bf16);
      push_split(copies_,
                 {.from = bias.bytes.get(),
                  .offset = bias.offset + static_cast<std::uint64_t>(slice_.experts.begin) * row_bytes,
                  .rows = experts,
                  .row_bytes = row_bytes,
                  .skip = static_cast<std::size_t>(rows.begin) * sizeof(Bf16),
                  .take = take,
                  .to = to},
                 job_bytes_);
      to += take * experts;
    }
  }

  void convert() {
    CHECK(spec_.kind == WeightKind::kExperts && stored_.parts.size() == 1, "{}", spec_.name);
    const StripeConverter converter(stored_, spec_, slice_, weight_, options_.allow_inexact);
    auto* payload = static_cast<std::byte*>(weight_.payload.raw());
    auto* scales = static_cast<std::byte*>(weight_.scales.raw());
    std::mutex mutex;
    for_each_index(converter.jobs(), options_.threads, [&](std::size_t job) {
      const StripeConverter::Extent extent = converter.extent(job);
      TileReport report;
      if (delivery_.in_place()) {
        report = converter.run(job, payload + extent.payload, scales + extent.scales);
      } else {
        // Scales first: they may be floats, and then the payload is bytes.
        std::vector<std::byte> converted(extent.scale_bytes + extent.payload_bytes);
        std::byte* converted_payload = converted.data() + extent.scale_bytes;
        report = converter.run(job, converted_payload, converted.data());
        delivery_.copy(payload + extent.payload, converted_payload, extent.payload_bytes);
        delivery_.copy(scales + extent.scales, converted.data(), extent.scale_bytes);
      }
      if (options_.report != nullptr) {
        const std::lock_guard lock(mutex);
        options_.report->add(report);
      }
    });
  }

  // 255 is NaN: a group of NaNs would poison every token that meets its expert. `bytes` are those meant for `to`.
  void check_scales(const std::byte* bytes, std::size_t count, const std::byte* to) const {
    const void* found = std::memchr(bytes, 0xff, count);
    if (found == nullptr) return;
    const std::int64_t at =
        (to - static_cast<const std::byte*>(weight_.scales.raw())) + (static_cast<const std::byte*>(found) - bytes);
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
  const Delivery& delivery_;
  const SourceOptions& options_;
  std::size_t job_bytes_;
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
                  Arena& arena, const Delivery& delivery, const SourceOptions& options) {
  return SliceLoader(stored, spec, slice, format, arena, delivery, options).load();
}

Weight StoredSource::load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
                          const Stream& stream) {
  CHECK(arena.device() == stream.device(), "an arena on {}, a stream on {}", arena.device().name(),
        stream.device().name());
  const bool in_place = arena.device().is_cpu() && !options_.staged;
  const Delivery delivery = in_place ? Delivery() : Delivery(staging_for(arena.device()), stream);
  return load_slice(locate(spec), spec, slice_of(spec, plan, rank), format, arena, delivery, options_);
}

Staging& StoredSource::staging_for(Device device) {
  const std::lock_guard lock(staging_mutex_);
  if (staging_ == nullptr) {
    // A buffer for each thread to fill, and some more that are on their way.
    staging_ = std::make_unique<Staging>(device, options_.staging_bytes, options_.threads + 4);
  }
  return *staging_;
}

}  // namespace rose
