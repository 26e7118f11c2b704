#include "bench_ops_memory.h"

#include <cstddef>

#include "base/check.h"

namespace rose {

OpMemory::~OpMemory() {
  for (void* pointer : owned_) device_free(stream_.device(), pointer);
}

void* OpMemory::bytes(std::size_t count, int byte) {
  constexpr std::uintptr_t kAlignment = 1024;
  void* const slab = device_allocate(stream_.device(), count + kAlignment);
  owned_.push_back(slab);
  device_fill(stream_.device(), slab, byte, count + kAlignment);
  const std::uintptr_t skip = (kAlignment - reinterpret_cast<std::uintptr_t>(slab) % kAlignment) % kAlignment;
  return static_cast<std::byte*>(slab) + skip;
}

Tensor OpMemory::tensor(DType dtype, std::initializer_list<std::int64_t> sizes, int byte) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return {bytes(static_cast<std::size_t>(elements) * dtype_bytes(dtype), byte), dtype, stream_.device(), sizes};
}

Tensor OpMemory::random(DType dtype, std::initializer_list<std::int64_t> sizes, float size) {
  const Tensor out = tensor(dtype, sizes);
  randomize(out, size);
  return out;
}

void OpMemory::randomize(const Tensor& numbers, float size) { fill_.numbers(stream_, numbers, ++seed_, size); }

Tensor OpMemory::random_bytes(std::initializer_list<std::int64_t> sizes, int low, int high) {
  const Tensor out = tensor(DType::kU8, sizes);
  fill_.bytes(stream_, out, ++seed_, low, high);
  return out;
}

void OpMemory::copy_in(void* to, const void* from, std::size_t count) {
  copy_async(stream_, to, from, count);
  stream_.synchronize();
}

Tensor OpMemory::integers(const std::vector<std::int32_t>& values, std::initializer_list<std::int64_t> sizes) {
  const Tensor out = tensor(DType::kI32, sizes);
  CHECK(out.elements() == static_cast<std::int64_t>(values.size()), "{} of {} values", out.describe(), values.size());
  copy_in(out.raw(), values.data(), out.bytes());
  return out;
}

}  // namespace rose
