#include "ops/copy_pages/copy_pages_cuda.h"

#include "device/cuda/gpu.h"
#include "ops/copy_pages/copy_pages_params.cuh"

namespace rose::ops::cuda {

void copy_pages(const Stream& stream, const KvLayer& from, KvLayer& to, const Tensor& pairs) {
  if (pairs.size(0) == 0 || from.keys.elements() == 0 || to.keys.elements() == 0) return;
  CopyPagesParams params{};
  params.from[0] = static_cast<const std::uint8_t*>(from.keys.raw());
  params.from[1] = static_cast<const std::uint8_t*>(from.values.raw());
  params.to[0] = static_cast<std::uint8_t*>(to.keys.raw());
  params.to[1] = static_cast<std::uint8_t*>(to.values.raw());
  params.pairs = reinterpret_cast<const int2*>(pairs.as<std::int32_t>());
  params.page_bytes = from.keys.stride(0) * static_cast<std::int64_t>(dtype_bytes(from.keys.dtype()));
  params.count = static_cast<int>(pairs.size(0));
  params.from_pages = static_cast<int>(from.keys.size(0));
  params.to_pages = static_cast<int>(to.keys.size(0));
  auto places = static_cast<std::uintptr_t>(params.page_bytes);
  for (int i = 0; i < 2; ++i) {
    places |= reinterpret_cast<std::uintptr_t>(params.from[i]) | reinterpret_cast<std::uintptr_t>(params.to[i]);
  }
  CHECK(places % 16 == 0 && pairs.contiguous() && reinterpret_cast<std::uintptr_t>(params.pairs) % alignof(int2) == 0,
        "copy_pages on {}: {}, pairs {}", stream.device().name(), from.keys.describe(), pairs.describe());
  launch_copy_pages(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
