#include "ops/scratch.h"

#include <cstdlib>

#include "base/check.h"

namespace rose::ops {

void Scratch::Free::operator()(float* pointer) const { std::free(pointer); }

float* Scratch::floats(std::int64_t count) {
  constexpr std::size_t kAlignment = 64;
  CHECK(count >= 0, "{} floats", count);
  if (count > size_) {
    floats_.reset();
    const std::size_t bytes =
        (static_cast<std::size_t>(count) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
    floats_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
    CHECK(floats_ != nullptr, "no memory for {} bytes of working space", bytes);
    size_ = count;
  }
  return floats_.get();
}

}  // namespace rose::ops
