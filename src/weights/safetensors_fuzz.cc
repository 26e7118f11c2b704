// Any bytes as a safetensors file: a table that tiles the data exactly, or StartError.
#include <cstdlib>
#include <cstring>

#include "base/result.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const rose::ReadBytes read = [&](std::uint64_t offset, std::size_t count, void* to) {
    if (offset > size || count > size - offset) std::abort();  // a read outside the file
    std::memcpy(to, bytes + offset, count);
  };
  try {
    std::uint64_t sum = 0;
    const auto tensors = rose::parse_safetensors("input", size, read);
    for (const rose::SafetensorsTensor& tensor : tensors) {
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
      sum += tensor.bytes;
    }
    if (sum > size) std::abort();
  } catch (const rose::StartError&) {
  }
  return 0;
}
