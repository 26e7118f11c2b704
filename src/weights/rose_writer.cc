#include "weights/rose_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/result.h"
#include "weights/checked.h"
#include "weights/file.h"
#include "weights/partial_file.h"
#include "weights/rose_file.h"
#include "weights/threads.h"

namespace rose {
namespace {

struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  // of each kRoseChunkBytes

  json::Object to_json() const {
    std::string hex;
    for (const std::uint64_t checksum : checksums) hex += fmt::format("{:016x}", checksum);
    return {{"offset", offset}, {"bytes", bytes}, {"xxh3", std::move(hex)}};
  }
};

struct PlannedTensor {
  const WeightSpec* spec = nullptr;
  WeightFormat format = WeightFormat::kBf16;
  Extent payload;
  Extent scales;
  Extent bias;
};

std::uint64_t align(std::uint64_t offset) { return (offset + kRoseAlignment - 1) / kRoseAlignment * kRoseAlignment; }

class Writer {
 public:
  Writer(const StoredSource& source, const std::vector<WeightSpec>& specs, const std::string& path, std::string made_by,
         const ConvertOptions& options, const Progress& progress, const std::function<bool()>& cancelled)
      : source_(source),
        path_(path),
        made_by_(std::move(made_by)),
        options_(options),
        progress_(progress),
        cancelled_(cancelled) {
    for (const WeightSpec& spec : specs) {
      const bool experts = spec.kind == WeightKind::kExperts;
      tensors_.push_back({&spec, experts ? options.experts : WeightFormat::kBf16, {}, {}, {}});
      const StoredWeight stored = source.locate(spec);  // checks every shape before anything is written
      all_exact_ = all_exact_ && (!experts || exact_when_fp8(stored));
    }
    plan();
  }

  ConvertReport write() {
    if (!options_.replace && file_exists(path_)) {
      throw StartError(fmt::format("{}: exists already (--force replaces it)", path_), kExitUsage);
    }
    PartialFile file(path_, end_);
    file_ = &file;
    write_extent(tokenizer_, source_.tokenizer_json().data());
    for (PlannedTensor& tensor : tensors_) write_tensor(tensor);
    if (report_.tiles.inexact > 0 && all_exact_ && !options_.allow_inexact) {
      throw StartError(
          fmt::format("{} of {} FP8 tiles would not be exact; the first is {}. --allow-inexact rounds them, "
                      "--experts mxfp4 keeps the stored values",
                      report_.tiles.inexact, report_.tiles.tiles, report_.tiles.first_inexact));
    }
    write_header();
    check_cancelled();
    file.commit(options_.replace);
    report_.file_bytes = end_;
    report_.tokenizer_bytes = tokenizer_.bytes;
    return report_;
  }

 private:
  // Stored values that FP8 tiles can hold exactly, or already do: rounding them needs the user's word.
  static bool exact_when_fp8(const StoredWeight& stored) {
    return stored.format == WeightFormat::kMxfp4 || (stored.format == WeightFormat::kFp8 && stored.exact_fp8);
  }

  // Offsets of everything. The header comes first in the file and is known last: it gets room for the widest numbers
  // and is filled up with spaces.
  void plan() {
    const auto size = [](Extent& extent, std::uint64_t bytes) {
      extent.bytes = bytes;
      extent.checksums.assign(static_cast<std::size_t>(bytes / kRoseChunkBytes + (bytes % kRoseChunkBytes != 0)), 0);
    };
    size(tokenizer_, source_.tokenizer_json().size());
    for (PlannedTensor& tensor : tensors_) {
      const WeightSpec& spec = *tensor.spec;
      const WeightSizes sizes = weight_sizes(tensor.format, spec.experts, spec.out, spec.in);
      size(tensor.payload, sizes.payload);
      size(tensor.scales, sizes.scales);
      size(tensor.bias, spec.bias ? weight_sizes(WeightFormat::kBf16, spec.experts, spec.out, 1).payload : 0);
    }
    constexpr std::uint64_t kOffsetDigits = 20;
    constexpr std::uint64_t kFlagLetters = 8;
    header_bytes_ = header_text().size() + kFlagLetters + kOffsetDigits * (1 + 3 * tensors_.size());
    if (header_bytes_ > kRoseHeaderBytesMax) throw StartError(fmt::format("{}: too many tensors for one file", path_));
    std::uint64_t next = align(kRosePrefixBytes + header_bytes_);
    end_ = kRosePrefixBytes + header_bytes_;
    visit_extents([&](Extent& extent) {
      if (extent.bytes == 0) return;
      const std::optional<std::uint64_t> end = checked_sum(next, extent.bytes);
      if (!end || *end > 1ull << 62) throw StartError(fmt::format("{}: would be beyond 64-bit sizes", path_));
      extent.offset = next;
      end_ = *end;
      next = align(end_);
      total_ += extent.bytes;
    });
  }

  void visit_extents(const std::function<void(Extent&)>& visit) {
    visit(tokenizer_);
    for (PlannedTensor& tensor : tensors_) {
      visit(tensor.payload);
      visit(tensor.scales);
      visit(tensor.bias);
    }
  }

  std::string header_text() const {
    json::Array tensors;
    for (const PlannedTensor& tensor : tensors_) {
      json::Object entry{{"name", tensor.spec->name},       {"format", weight_format_name(tensor.format)},
                         {"experts", tensor.spec->experts}, {"out", tensor.spec->out},
                         {"in", tensor.spec->in},           {"payload", tensor.payload.to_json()}};
      if (tensor.scales.bytes > 0) entry["scales"] = tensor.scales.to_json();
      if (tensor.bias.bytes > 0) entry["bias"] = tensor.bias.to_json();
      tensors.push_back(std::move(entry));
    }
    const json::Object header{{"layout", kRoseLayout},
                              {"made_by", made_by_},
                              {"config", source_.config()},
                              {"generation_config", source_.generation_config()},
                              {"chat_format", source_.chat_format()},
                              {"expert_format", weight_format_name(options_.experts)},
                              {"exact_fp8", all_exact_ && report_.tiles.inexact == 0},
                              {"tokenizer", tokenizer_.to_json()},
                              {"tensors", std::move(tensors)}};
    return json::serialize(header);
  }

  void check_cancelled() const {
    if (cancelled_()) throw StartError(fmt::format("interrupted; {} was not written", path_), kExitInterrupted);
  }

  void write_tensor(PlannedTensor& tensor) {
    check_cancelled();
    const WeightSpec& spec = *tensor.spec;
    const WeightSlice whole = slice_of(spec, ParallelPlan{}, 0);
    Arena arena(Device{}, slice_bytes(spec, whole, tensor.format), spec.name);
    // Tiles that are not exact are all counted before they are refused: the user sees how many there are.
    const SourceOptions load{
        .allow_inexact = true, .map = false, .threads = options_.threads, .report = &report_.tiles};
    const Weight weight = load_slice(source_.locate(spec), spec, whole, tensor.format, arena, Delivery(), load);
    write_extent(tensor.payload, weight.payload.raw());
    if (tensor.scales.bytes > 0) write_extent(tensor.scales, weight.scales.raw());
    if (tensor.bias.bytes > 0) write_extent(tensor.bias, weight.bias.raw());
    ConvertReport::PerFormat& format = report_.formats[static_cast<std::size_t>(tensor.format)];
    ++format.tensors;
    format.bytes += tensor.payload.bytes + tensor.scales.bytes;
    report_.bias_bytes += tensor.bias.bytes;
  }

  void write_extent(Extent& extent, const void* from) {
    std::mutex mutex;  // progress is called from one thread at a time
    for_each_index(extent.checksums.size(), options_.threads, [&](std::size_t chunk) {
      check_cancelled();
      const std::uint64_t begin = chunk * kRoseChunkBytes;
      const std::size_t bytes = static_cast<std::size_t>(std::min(kRoseChunkBytes, extent.bytes - begin));
      const auto* piece = static_cast<const std::byte*>(from) + begin;
      extent.checksums[chunk] = XXH3_64bits(piece, bytes);
      file_->write(extent.offset + begin, piece, bytes);
      const std::lock_guard lock(mutex);
      done_ += bytes;
      if (progress_) progress_(done_, total_);
    });
  }

  void write_header() {
    std::string text = header_text();
    CHECK(text.size() <= header_bytes_, "{} of {}", text.size(), header_bytes_);
    text.resize(static_cast<std::size_t>(header_bytes_), ' ');
    std::array<std::byte, kRosePrefixBytes> prefix{};
    std::memcpy(prefix.data(), kRoseMagic.data(), kRoseMagic.size());
    const auto put = [&](std::size_t at, auto value) {
      for (std::size_t i = 0; i < sizeof(value); ++i) prefix[at + i] = static_cast<std::byte>(value >> (8 * i));
    };
    put(8, kRoseVersion);
    put(16, static_cast<std::uint64_t>(text.size()));
    put(24, static_cast<std::uint64_t>(XXH3_64bits(text.data(), text.size())));
    file_->write(kRosePrefixBytes, text.data(), text.size());
    file_->write(0, prefix.data(), prefix.size());
  }

  const StoredSource& source_;
  const std::string& path_;
  std::string made_by_;
  const ConvertOptions& options_;
  const Progress& progress_;
  const std::function<bool()>& cancelled_;
  std::vector<PlannedTensor> tensors_;
  Extent tokenizer_;
  bool all_exact_ = true;  // no stored expert value needs rounding before it meets a tile
  std::uint64_t header_bytes_ = 0;
  std::uint64_t end_ = 0;  // of the file
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  PartialFile* file_ = nullptr;
  ConvertReport report_;
};

}  // namespace

ConvertReport write_rose_file(const StoredSource& source, const std::vector<WeightSpec>& specs, const std::string& path,
                              const std::string& made_by, const ConvertOptions& options, const Progress& progress,
                              const std::function<bool()>& cancelled) {
  static_assert(std::endian::native == std::endian::little, "the file holds memory as it is");
  return Writer(source, specs, path, made_by, options, progress, cancelled).write();
}

}  // namespace rose
