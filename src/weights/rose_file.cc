#include "weights/rose_file.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>

#include "base/result.h"
#include "weights/checked.h"

namespace rose {
namespace {

template <class T>
T read_little(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(std::to_integer<T>(bytes[at + i]) << (8 * i));
  return value;
}

const json::Value* field(const json::Object& object, const char* key) { return object.if_contains(key); }

std::optional<std::uint64_t> whole(const json::Value* value) {
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value->get_int64());
}

std::optional<std::string> text(const json::Value* value) {
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string());
}

}  // namespace

// One run of bytes of the file. A chunk's first reader verifies it; others that come meanwhile wait, so that several
// ranks and stripes hash every chunk once. Reads go through read(2): it copies faster than a mapping faults in, and a
// file cut short is an error instead of a SIGBUS. Only mapped() touches the mapping.
class RoseFile::Extent : public StoredBytes {
 public:
  Extent(std::shared_ptr<const File> file, std::shared_ptr<const Mapping> mapping, std::string name,
         std::uint64_t offset, std::uint64_t bytes, std::vector<std::uint64_t> checksums)
      : file_(std::move(file)),
        mapping_(std::move(mapping)),
        name_(std::move(name)),
        offset_(offset),
        bytes_(bytes),
        checksums_(std::move(checksums)),
        verified_(checksums_.size()) {}

  std::string name() const override { return name_; }
  std::uint64_t size() const override { return bytes_; }
  std::uint64_t offset() const { return offset_; }

  void read(std::uint64_t offset, std::size_t bytes, void* to) const override {
    CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "{} + {} of {} in {}", offset, bytes, bytes_, name_);
    auto* out = static_cast<std::byte*>(to);
    while (bytes > 0) {
      const std::uint64_t chunk = offset / kRoseChunkBytes;
      const std::size_t part = std::min<std::uint64_t>(bytes, (chunk + 1) * kRoseChunkBytes - offset);
      read_part(chunk, offset, part, out);
      out += part;
      offset += part;
      bytes -= part;
    }
  }

  const std::byte* mapped() const override {
    const std::byte* begin = mapping_->bytes().data() + offset_;
    for (std::uint64_t chunk = 0; chunk < checksums_.size(); ++chunk) {
      std::call_once(verified_[static_cast<std::size_t>(chunk)],
                     [&] { verify(chunk, begin + chunk * kRoseChunkBytes); });
    }
    return begin;
  }

 private:
  std::size_t chunk_bytes(std::uint64_t chunk) const {
    return static_cast<std::size_t>(std::min(kRoseChunkBytes, bytes_ - chunk * kRoseChunkBytes));
  }

  // [offset, offset + bytes) of one chunk.
  void read_part(std::uint64_t chunk, std::uint64_t offset, std::size_t bytes, std::byte* to) const {
    bool done = false;
    std::call_once(verified_[static_cast<std::size_t>(chunk)], [&] {
      const std::uint64_t begin = chunk * kRoseChunkBytes;
      const std::size_t whole = chunk_bytes(chunk);
      if (bytes == whole) {  // the usual case: hashed where it is wanted
        file_->read(offset_ + begin, whole, to);
        verify(chunk, to);
      } else {
        std::vector<std::byte> bytes_of_chunk(whole);
        file_->read(offset_ + begin, whole, bytes_of_chunk.data());
        verify(chunk, bytes_of_chunk.data());
        std::memcpy(to, bytes_of_chunk.data() + (offset - begin), bytes);
      }
      done = true;
    });
    if (!done) file_->read(offset_ + offset, bytes, to);
  }

  void verify(std::uint64_t chunk, const std::byte* bytes) const {
    const std::uint64_t expected = checksums_[static_cast<std::size_t>(chunk)];
    const std::uint64_t found = XXH3_64bits(bytes, chunk_bytes(chunk));
    if (found == expected) return;
    const std::uint64_t from = chunk * kRoseChunkBytes;
    throw StartError(
        fmt::format("{}: checksum of bytes {} to {} is {:016x}, the file says {:016x}: the file is damaged, "
                    "convert it again",
                    name_, from, from + chunk_bytes(chunk), found, expected));
  }

  std::shared_ptr<const File> file_;
  std::shared_ptr<const Mapping> mapping_;
  std::string name_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
  std::vector<std::uint64_t> checksums_;
  mutable std::vector<std::once_flag> verified_;
};

bool is_rose_file(const std::string& path) {
  if (!file_exists(path)) return false;
  const File file(path);
  std::string magic(kRoseMagic.size(), '\0');
  if (file.size() < magic.size()) return false;
  file.read(0, magic.size(), magic.data());
  return magic == kRoseMagic;
}

RoseFile::RoseFile(const std::string& path, const SourceOptions& options) : StoredSource(options), path_(path) {
  const json::Value header = read_header();
  const json::Object& object = header.get_object();
  const auto need = [&](const char* key) -> const json::Value& {
    const json::Value* value = field(object, key);
    if (value == nullptr) throw StartError(fmt::format("{}: its header has no \"{}\"", path_, key));
    return *value;
  };
  if (text(&need("layout")) != kRoseLayout) {
    throw StartError(fmt::format("{}: has weight layout {}, this program reads \"{}\": convert the checkpoint again",
                                 path_, json::serialize(need("layout")), kRoseLayout));
  }
  config_ = need("config");
  generation_config_ = need("generation_config");
  if (!config_.is_object() || !generation_config_.is_object()) {
    throw StartError(fmt::format("{}: its config is not an object", path_));
  }
  chat_format_ = text(&need("chat_format")).value_or("");
  const std::optional<WeightFormat> format = weight_format_from_name(text(&need("expert_format")).value_or(""));
  if (!format) throw StartError(fmt::format("{}: expert_format {}", path_, json::serialize(need("expert_format"))));
  expert_format_ = *format;
  exact_fp8_ = need("exact_fp8").is_bool() && need("exact_fp8").get_bool();
  read_tensors(object);
  const json::Value& tokenizer = need("tokenizer");
  const std::optional<std::uint64_t> bytes =
      tokenizer.is_object() ? whole(field(tokenizer.get_object(), "bytes")) : std::nullopt;
  if (!bytes) throw StartError(fmt::format("{}: its tokenizer has no size", path_));
  if (*bytes > 0) {
    const std::shared_ptr<const Extent> extent = read_extent(&tokenizer, fmt::format("{}: tokenizer", path_), *bytes);
    tokenizer_json_ = {reinterpret_cast<const char*>(extent->mapped()), static_cast<std::size_t>(*bytes)};
  }
  check_tiling();
}

json::Value RoseFile::read_header() {
  file_ = std::make_shared<const File>(path_);
  mapping_ = std::make_shared<const Mapping>(*file_);
  const std::span<const std::byte> bytes = mapping_->bytes();
  if (bytes.size() < kRosePrefixBytes || std::memcmp(bytes.data(), kRoseMagic.data(), kRoseMagic.size()) != 0) {
    throw StartError(fmt::format("{}: not a rose file", path_));
  }
  const auto version = read_little<std::uint32_t>(bytes, 8);
  if (version != kRoseVersion) {
    throw StartError(
        fmt::format("{}: rose file version {}, this program reads version {}: convert the checkpoint again", path_,
                    version, kRoseVersion));
  }
  const auto header_bytes = read_little<std::uint64_t>(bytes, 16);
  if (read_little<std::uint32_t>(bytes, 12) != 0 || header_bytes > kRoseHeaderBytesMax ||
      header_bytes > bytes.size() - kRosePrefixBytes) {
    throw StartError(
        fmt::format("{}: header of {} bytes in a file of {}: the file is damaged", path_, header_bytes, bytes.size()));
  }
  const std::span<const std::byte> header = bytes.subspan(kRosePrefixBytes, static_cast<std::size_t>(header_bytes));
  if (XXH3_64bits(header.data(), header.size()) != read_little<std::uint64_t>(bytes, 24)) {
    throw StartError(
        fmt::format("{}: the header's checksum does not match: the file is damaged, convert it again", path_));
  }
  data_begin_ = (kRosePrefixBytes + header_bytes + kRoseAlignment - 1) / kRoseAlignment * kRoseAlignment;
  Result<json::Value> value = json::parse({reinterpret_cast<const char*>(header.data()), header.size()},
                                          {.bytes_max = kRoseHeaderBytesMax, .depth_max = 40});
  if (!value) throw StartError(fmt::format("{}: header: {}", path_, value.error().message));
  if (!value->is_object()) throw StartError(fmt::format("{}: header is no object", path_));
  return std::move(value).value();
}

void RoseFile::read_tensors(const json::Object& header) {
  const json::Value* tensors = field(header, "tensors");
  if (tensors == nullptr || !tensors->is_array()) throw StartError(fmt::format("{}: its header has no tensors", path_));
  for (const json::Value& value : tensors->get_array()) {
    const std::optional<std::string> name = value.is_object() ? text(field(value.get_object(), "name")) : std::nullopt;
    if (!name) throw StartError(fmt::format("{}: a tensor has no name", path_));
    if (!tensors_.try_emplace(*name, read_entry(value.get_object(), *name)).second) {
      throw StartError(fmt::format("{}: tensor {} is there twice", path_, *name));
    }
  }
}

RoseFile::Entry RoseFile::read_entry(const json::Object& object, const std::string& name) {
  const std::string label = fmt::format("{}: tensor {}", path_, name);
  const std::optional<WeightFormat> format = weight_format_from_name(text(field(object, "format")).value_or(""));
  if (!format) throw StartError(fmt::format("{}: has no format that this program knows", label));
  Entry entry;
  entry.format = *format;
  for (const auto& [key, size] : {std::pair{"experts", &entry.experts}, {"out", &entry.out}, {"in", &entry.in}}) {
    const std::optional<std::uint64_t> number = whole(field(object, key));
    if (!number) throw StartError(fmt::format("{}: \"{}\" is not a whole number", label, key));
    *size = static_cast<std::int64_t>(*number);
  }
  const WeightSizes sizes = weight_sizes(entry.format, entry.experts, entry.out, entry.in);
  entry.payload = read_extent(field(object, "payload"), label, sizes.payload);
  if (sizes.scales > 0) entry.scales = read_extent(field(object, "scales"), label + " scales", sizes.scales);
  if (const json::Value* bias = field(object, "bias"); bias != nullptr) {
    const WeightSizes bias_sizes = weight_sizes(WeightFormat::kBf16, entry.experts, entry.out, 1);
    entry.bias = read_extent(bias, label + " bias", bias_sizes.payload);
  }
  return entry;
}

std::shared_ptr<const RoseFile::Extent> RoseFile::read_extent(const json::Value* value, const std::string& name,
                                                              std::uint64_t bytes) {
  const json::Object* object = value == nullptr ? nullptr : value->if_object();
  if (object == nullptr) throw StartError(fmt::format("{}: has no extent", name));
  const std::optional<std::uint64_t> offset = whole(field(*object, "offset"));
  const std::optional<std::uint64_t> stored = whole(field(*object, "bytes"));
  const std::optional<std::string> hex = text(field(*object, "xxh3"));
  const std::uint64_t file_bytes = mapping_->bytes().size();
  if (!offset || stored != bytes || *offset % kRoseAlignment != 0 || *offset > file_bytes ||
      bytes > file_bytes - *offset) {
    throw StartError(fmt::format("{}: needs {} bytes in the file's {}, its extent is {}", name, bytes, file_bytes,
                                 json::serialize(*object).substr(0, 80)));
  }
  const std::uint64_t chunks = bytes / kRoseChunkBytes + (bytes % kRoseChunkBytes != 0);
  if (!hex || hex->size() != chunks * 16)
    throw StartError(fmt::format("{}: has no checksums for {} bytes", name, bytes));
  std::vector<std::uint64_t> checksums(static_cast<std::size_t>(chunks));
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const char* digits = hex->data() + i * 16;
    const auto [end, error] = std::from_chars(digits, digits + 16, checksums[i], 16);
    if (error != std::errc() || end != digits + 16) throw StartError(fmt::format("{}: bad checksum digits", name));
  }
  auto extent = std::make_shared<const Extent>(file_, mapping_, name, *offset, bytes, std::move(checksums));
  extents_.push_back(extent);
  return extent;
}

// Extents follow each other at their alignment, from the header's end to the end of the file.
void RoseFile::check_tiling() const {
  std::vector<std::shared_ptr<const Extent>> sorted = extents_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a->offset() < b->offset(); });
  std::uint64_t next = data_begin_;
  std::uint64_t end = kRosePrefixBytes;
  for (const auto& extent : sorted) {
    if (extent->offset() != next) {
      throw StartError(fmt::format("{}: begins at byte {}, expected at {}", extent->name(), extent->offset(), next));
    }
    end = extent->offset() + extent->size();
    next = (end + kRoseAlignment - 1) / kRoseAlignment * kRoseAlignment;
  }
  if (!sorted.empty() && end != mapping_->bytes().size()) {
    throw StartError(
        fmt::format("{}: its tensors end at byte {}, the file has {}", path_, end, mapping_->bytes().size()));
  }
}

std::string RoseFile::describe() const {
  return fmt::format("rose file {} ({} experts)", path_, weight_format_name(expert_format_));
}

StoredWeight RoseFile::locate(const WeightSpec& spec) const {
  const auto found = tensors_.find(spec.name);
  if (found == tensors_.end()) throw StartError(fmt::format("{}: tensor {} is missing", path_, spec.name));
  const Entry& entry = found->second;
  if (entry.experts != spec.experts || entry.out != spec.out || entry.in != spec.in ||
      (spec.bias && entry.bias == nullptr) ||
      (spec.kind != WeightKind::kExperts && entry.format != WeightFormat::kBf16)) {
    throw StartError(fmt::format("{}: tensor {} is {} [{}, {}, {}]{}, expected [{}, {}, {}]{}", path_, spec.name,
                                 weight_format_name(entry.format), entry.experts, entry.out, entry.in,
                                 entry.bias == nullptr ? "" : " with bias", spec.experts, spec.out, spec.in,
                                 spec.bias ? " with bias" : ""));
  }
  StoredWeight stored{.format = entry.format, .transposed = false, .exact_fp8 = exact_fp8_, .parts = {}};
  std::int64_t rows_before = 0;
  for (const SourcePart& part : spec.parts) {
    StoredPart located;
    located.payload = {entry.payload, static_cast<std::uint64_t>(rows_before * spec.in) * sizeof(Bf16)};
    if (entry.scales != nullptr) located.scales = {entry.scales, 0};
    if (spec.bias) located.bias = {entry.bias, static_cast<std::uint64_t>(rows_before) * sizeof(Bf16)};
    stored.parts.push_back(std::move(located));
    rows_before += part.rows;
  }
  return stored;
}

}  // namespace rose
