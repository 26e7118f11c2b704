#include "weights/safetensors.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "json/json.h"
#include "weights/checked.h"

namespace rose {
namespace {

struct DTypeBits {
  std::string_view name;
  std::uint64_t bits;
};
constexpr DTypeBits kDTypes[] = {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
                                 {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8},
                                 {"I16", 16}, {"U16", 16},    {"F16", 16},    {"F8_E5M2FNUZ", 8}, {"BF16", 16},
                                 {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
                                 {"I64", 64}, {"U64", 64}};

std::optional<std::uint64_t> dtype_bits(std::string_view name) {
  for (const DTypeBits& dtype : kDTypes) {
    if (dtype.name == name) return dtype.bits;
  }
  return std::nullopt;
}

// A whole number in [0, 2^63): doubles are refused, because an offset of several GB must not pass through one.
std::optional<std::uint64_t> whole(const json::Value& value) {
  if (const std::int64_t* number = value.if_int64(); number != nullptr && *number >= 0) {
    return static_cast<std::uint64_t>(*number);
  }
  return std::nullopt;
}

// Names go into error texts: cut short, and without control characters.
std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 120)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return name.size() > 120 ? text + "..." : text;
}

class TableParser {
 public:
  TableParser(const std::string& file, std::uint64_t data_begin, std::uint64_t data_bytes)
      : file_(file), data_begin_(data_begin), data_bytes_(data_bytes) {}

  std::vector<SafetensorsTensor> parse(const json::Object& header, std::size_t tensors_max) const {
    if (header.size() > tensors_max) {
      throw StartError(fmt::format("{}: {} tensors, at most {} are accepted", file_, header.size(), tensors_max));
    }
    std::vector<SafetensorsTensor> tensors;
    tensors.reserve(header.size());
    for (const auto& [key, value] : header) {
      const std::string_view name(key.data(), key.size());
      if (name == "__metadata__") {
        check_metadata(value);
      } else {
        tensors.push_back(tensor(name, value));
      }
    }
    check_tiling(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    throw StartError(fmt::format("{}: tensor \"{}\": {}", file_, shown(name), what));
  }

  void check_metadata(const json::Value& value) const {
    const json::Object* object = value.if_object();
    if (object == nullptr) throw StartError(fmt::format("{}: __metadata__ is not an object", file_));
    for (const auto& [key, text] : *object) {
      if (!text.is_string()) {
        throw StartError(
            fmt::format("{}: __metadata__ \"{}\" is not a string", file_, shown({key.data(), key.size()})));
      }
    }
  }

  SafetensorsTensor tensor(std::string_view name, const json::Value& value) const {
    const json::Object* entry = value.if_object();
    if (entry == nullptr) fail(name, "its entry is not an object");
    SafetensorsTensor out;
    out.name = std::string(name);
    const json::Value* dtype = nullptr;
    const json::Value* shape = nullptr;
    const json::Value* offsets = nullptr;
    for (const auto& [key, field] : *entry) {
      if (key == "dtype")
        dtype = &field;
      else if (key == "shape")
        shape = &field;
      else if (key == "data_offsets")
        offsets = &field;
      else
        fail(name, fmt::format("unknown field \"{}\"", shown({key.data(), key.size()})));
    }
    if (dtype == nullptr || shape == nullptr || offsets == nullptr) {
      fail(name, "needs dtype, shape and data_offsets");
    }
    const std::uint64_t elements = read_shape(name, *shape, out);
    read_extent(name, *offsets, out);
    check_size(name, *dtype, elements, out);
    return out;
  }

  // The number of elements.
  std::uint64_t read_shape(std::string_view name, const json::Value& value, SafetensorsTensor& out) const {
    const json::Array* sizes = value.if_array();
    if (sizes == nullptr) fail(name, "shape is not an array");
    std::optional<std::uint64_t> elements = 1;
    bool zero = false;
    for (const json::Value& size : *sizes) {
      const std::optional<std::uint64_t> number = whole(size);
      if (!number) fail(name, fmt::format("shape holds {}, not a whole number", json::serialize(size).substr(0, 40)));
      out.shape.push_back(static_cast<std::int64_t>(*number));
      zero = zero || *number == 0;
    }
    if (zero) return 0;
    for (const std::int64_t size : out.shape) {
      elements = checked_product({*elements, static_cast<std::uint64_t>(size)});
      if (!elements) fail(name, "shape is beyond 64 bits");
    }
    return *elements;
  }

  void read_extent(std::string_view name, const json::Value& value, SafetensorsTensor& out) const {
    const json::Array* offsets = value.if_array();
    if (offsets == nullptr || offsets->size() != 2) fail(name, "data_offsets is not a pair");
    const std::optional<std::uint64_t> begin = whole((*offsets)[0]);
    const std::optional<std::uint64_t> end = whole((*offsets)[1]);
    if (!begin || !end) fail(name, "data_offsets are not whole numbers");
    if (*begin > *end || *end > data_bytes_) {
      fail(name, fmt::format("data_offsets [{}, {}] do not lie in the {} data bytes", *begin, *end, data_bytes_));
    }
    out.offset = data_begin_ + *begin;
    out.bytes = *end - *begin;
  }

  void check_size(std::string_view name, const json::Value& value, std::uint64_t elements,
                  SafetensorsTensor& out) const {
    const boost::json::string* dtype = value.if_string();
    if (dtype == nullptr) fail(name, "dtype is not a string");
    out.dtype = std::string(dtype->data(), dtype->size());
    const std::optional<std::uint64_t> bits = dtype_bits(out.dtype);
    if (!bits) fail(name, fmt::format("unknown dtype \"{}\"", shown(out.dtype)));
    const std::optional<std::uint64_t> size = checked_product({elements, *bits});
    if (!size || *size % 8 != 0 || *size / 8 != out.bytes) {
      fail(name, fmt::format("{} needs {} bytes, data_offsets give {}", out.describe(),
                             size ? fmt::format("{}", (*size + 7) / 8) : "more than 2^64", out.bytes));
    }
  }

  // Sorts by position; the tensors must then follow each other from the first data byte to the last.
  void check_tiling(std::vector<SafetensorsTensor>& tensors) const {
    std::sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
    });
    std::uint64_t next = data_begin_;
    for (const SafetensorsTensor& tensor : tensors) {
      if (tensor.offset != next) {
        fail(tensor.name,
             fmt::format("begins at data byte {}, {} {}", tensor.offset - data_begin_,
                         tensor.offset < next ? "inside the tensor before it, which ends at" : "leaving a hole after",
                         next - data_begin_));
      }
      next += tensor.bytes;
    }
    if (next != data_begin_ + data_bytes_) {
      throw StartError(fmt::format("{}: its tensors end at data byte {}, the file has {}: {}", file_,
                                   next - data_begin_, data_bytes_, "trailing bytes are refused"));
    }
  }

  const std::string& file_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
};

// What people have instead of the file they meant to have.
std::string_view likely_content(std::string_view first_bytes) {
  if (first_bytes.starts_with("version ")) return " (a Git LFS pointer: fetch the real file)";
  if (first_bytes.starts_with("<")) return " (an HTML page: the download failed)";
  if (first_bytes.starts_with("PK\x03\x04") || first_bytes.starts_with("\x80\x02")) {
    return " (a pickle checkpoint: only safetensors are read)";
  }
  if (first_bytes.starts_with("GGUF")) return " (a GGUF file)";
  return "";
}

}  // namespace

std::string SafetensorsTensor::describe() const { return fmt::format("{} [{}]", dtype, fmt::join(shape, ", ")); }

std::vector<SafetensorsTensor> parse_safetensors(const std::string& file, std::uint64_t file_bytes,
                                                 const ReadBytes& read, const SafetensorsLimits& limits) {
  constexpr std::size_t kPrefix = 8;
  unsigned char prefix[kPrefix] = {};
  if (file_bytes < kPrefix) {
    throw StartError(fmt::format("{}: not a safetensors file: {} bytes long", file, file_bytes));
  }
  read(0, kPrefix, prefix);
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kPrefix; ++i) header_bytes |= static_cast<std::uint64_t>(prefix[i]) << (8 * i);
  const std::uint64_t rest = file_bytes - kPrefix;
  if (header_bytes > rest || header_bytes > limits.header_bytes_max || header_bytes < 2) {
    const std::string_view hint = likely_content({reinterpret_cast<const char*>(prefix), kPrefix});
    throw StartError(fmt::format("{}: not a whole safetensors file: header length {}, {} bytes follow, at most {} {}{}",
                                 file, header_bytes, rest, limits.header_bytes_max, "are accepted", hint));
  }
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  read(kPrefix, text.size(), text.data());
  if (text.front() != '{') throw StartError(fmt::format("{}: the header does not begin with {{", file));
  while (text.back() == ' ') text.pop_back();  // the writer pads with spaces, nothing else

  const Result<json::Value> header = json::parse(text, {.bytes_max = text.size(), .depth_max = 8});
  if (!header) throw StartError(fmt::format("{}: header: {}", file, header.error().message));
  if (!header->is_object() || text.back() != '}') throw StartError(fmt::format("{}: the header is no object", file));
  return TableParser(file, kPrefix + header_bytes, rest - header_bytes).parse(header->get_object(), limits.tensors_max);
}

}  // namespace rose
