#include "ops/quantize_weight/quantize_weight_cuda.h"

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "ops/quantize_weight/quantize_weight_params.cuh"

namespace rose::ops::cuda {

void quantize_weight(const Stream& stream, const Weight& from, const Weight& to, const Tensor& not_finite) {
  constexpr std::int64_t kOutMax = 65535 * kFp8Tile;  // the grid's second side
  CHECK(from.in % 8 == 0 && from.in < (1 << 30) && from.out <= kOutMax &&
            reinterpret_cast<std::uintptr_t>(from.payload.raw()) % 16 == 0 &&
            reinterpret_cast<std::uintptr_t>(to.payload.raw()) % 8 == 0,
        "quantize_weight on {}: {} to {}", stream.device().name(), from.payload.describe(), to.payload.describe());
  if (from.out == 0 || from.in == 0) return;
  launch_quantize_weight({.from = static_cast<const std::uint16_t*>(from.payload.raw()),
                          .payload = static_cast<std::uint8_t*>(to.payload.raw()),
                          .scales = to.scales.as<float>(),
                          .not_finite = not_finite.as<std::int32_t>(),
                          .out = static_cast<int>(from.out),
                          .in = static_cast<int>(from.in)},
                         rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
