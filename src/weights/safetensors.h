// The safetensors container: 8 bytes little-endian header length N, N bytes of JSON, then the data to the end of the
// file. Strict: whatever two readers could understand differently is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rose {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                // "BF16", "U8", ...: one of the container's own names
  std::vector<std::int64_t> shape;  // empty: a scalar
  std::uint64_t offset = 0;         // from the start of the file
  std::uint64_t bytes = 0;

  std::string describe() const;  // "BF16 [1024, 256]"
};

struct SafetensorsLimits {
  std::uint64_t header_bytes_max = 32u << 20;  // real headers are below 100 KB; the container itself allows 100 MB
  std::size_t tensors_max = 200'000;
};

// Copies [offset, offset + bytes) of the file; only called for ranges inside it.
using ReadBytes = std::function<void(std::uint64_t offset, std::size_t bytes, void* to)>;

// The table of a file of `file_bytes` bytes, in file order. Throws StartError, beginning with `file`, unless: the
// header lies in the file and is a JSON object of the container's form without duplicate keys; every size is dtype x
// shape without overflow; and the tensors tile the data exactly, without hole, overlap or rest.
std::vector<SafetensorsTensor> parse_safetensors(const std::string& file, std::uint64_t file_bytes,
                                                 const ReadBytes& read, const SafetensorsLimits& limits = {});

}  // namespace rose
