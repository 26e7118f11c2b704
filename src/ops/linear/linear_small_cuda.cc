#include "ops/linear/linear_small_cuda.h"

#include <cstdint>

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "ops/linear/linear_small_params.cuh"

namespace rose::ops::cuda {
namespace {

// Up to here every block reads all of x itself; beyond, that would cost more than the cluster's barriers.
constexpr std::int64_t kRowsOfOneBlock = 8;

bool fits(std::int64_t rows, std::int64_t in, LinearSmallSplit split) {
  constexpr std::int64_t kInMax = 1 << 20;  // keeps the sizes below within int
  if (rows < 1 || rows > LinearSmallShape::kRowsMax || in < 8 || in % 8 != 0 || in > kInMax) return false;
  if (split == LinearSmallSplit::kWarps && rows > LinearSmallShape::kWarpsRowsMax) return false;
  return LinearSmallShape::shared_bytes(static_cast<int>(rows), static_cast<int>(in), split) <=
         LinearSmallShape::kSharedMax;
}

bool aligned16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

void launch(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, LinearSmallSplit split) {
  CHECK(weight.format == WeightFormat::kBf16 && x.dtype() == DType::kBf16 &&
            (y.dtype() == DType::kBf16 || y.dtype() == DType::kF32),
        "linear on {}: {} weights, x {}, y {}", stream.device().name(), weight_format_name(weight.format), x.describe(),
        y.describe());
  CHECK(x.stride(0) % 8 == 0 && aligned16(x.raw()) && aligned16(weight.payload.raw()),
        "linear on {}: rows of x {} apart, or an address that is no multiple of 16 bytes", stream.device().name(),
        x.stride(0));
  LinearSmallParams params{};
  params.x = static_cast<const std::uint16_t*>(x.raw());
  params.weight = static_cast<const std::uint16_t*>(weight.payload.raw());
  params.bias = weight.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(weight.bias.raw());
  params.y = y.raw();
  params.x_stride = x.stride(0);
  params.y_stride = y.stride(0);
  params.y_is_f32 = y.dtype() == DType::kF32;
  params.rows = static_cast<int>(x.size(0));
  params.out = static_cast<int>(weight.out);
  params.in = static_cast<int>(weight.in);
  launch_linear_small(params, split, rose::cuda::multiprocessors(stream), rose::cuda::native_stream(stream));
}

}  // namespace

bool linear_small_fits(std::int64_t rows, std::int64_t in) {
  return fits(rows, in, LinearSmallSplit::kWarps) || fits(rows, in, LinearSmallSplit::kCluster);
}

void linear_small(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  const std::int64_t rows = x.size(0);
  if (rows == 0) return;
  const bool cluster = fits(rows, weight.in, LinearSmallSplit::kCluster);
  const bool warps = fits(rows, weight.in, LinearSmallSplit::kWarps);
  CHECK(cluster || warps, "linear on {}: {} rows of {} are not few", stream.device().name(), rows, weight.in);
  launch(stream, x, weight, y,
         warps && (rows <= kRowsOfOneBlock || !cluster) ? LinearSmallSplit::kWarps : LinearSmallSplit::kCluster);
}

bool linear_small_with(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                       LinearSmallKernel kernel) {
  const LinearSmallSplit split =
      kernel == LinearSmallKernel::kWarps ? LinearSmallSplit::kWarps : LinearSmallSplit::kCluster;
  if (!fits(x.size(0), weight.in, split)) return false;
  launch(stream, x, weight, y, split);
  return true;
}

}  // namespace rose::ops::cuda
