#include "ops/linear/linear_cuda.h"

#include <algorithm>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/linear/linear_batch_cuda.h"
#include "ops/linear/linear_params.cuh"
#include "ops/linear/linear_swapped_cuda.h"

namespace rose::ops::cuda {
namespace {

using rose::cuda::MapType;
using rose::cuda::matrix_map;
using rose::cuda::Swizzle;

template <class Config>
void tiled(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  LinearParams params{};
  params.rows = static_cast<int>(x.size(0));
  params.out = static_cast<int>(weight.out);
  params.in = static_cast<int>(weight.in);
  params.x =
      matrix_map(x.raw(), MapType::kBf16, params.rows, params.in, x.stride(0), Config::kM, Config::kK, Swizzle::k128);
  params.weight = matrix_map(weight.payload.raw(), MapType::kBf16, params.out, params.in, params.in, Config::kN,
                             Config::kK, Swizzle::k128);
  params.y = matrix_map(y.raw(), MapType::kBf16, params.rows, params.out, y.stride(0), 64, Config::kStoreColumns,
                        Config::kStoreSwizzled ? Swizzle::k128 : Swizzle::kNone);
  params.bias = weight.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(weight.bias.raw());
  const int tiles = ((params.rows + Config::kM - 1) / Config::kM) * ((params.out + Config::kN - 1) / Config::kN);
  launch_linear<Config>(params, std::min(tiles, rose::cuda::multiprocessors(stream)),
                        rose::cuda::native_stream(stream));
}

}  // namespace

void linear_tiled(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                  const LinearTile& tile) {
  CHECK(weight.format == WeightFormat::kBf16 && x.dtype() == DType::kBf16 && y.dtype() == DType::kBf16,
        "linear on {}: {} weights, x {}, y {}", stream.device().name(), weight_format_name(weight.format), x.describe(),
        y.describe());
  switch (tile.n) {
    case 256:
      return tiled<LinearConfig<128, 256>>(stream, x, weight, y);
    case 192:
      return tiled<LinearConfig<128, 192>>(stream, x, weight, y);
    case 160:
      return tiled<LinearConfig<128, 160>>(stream, x, weight, y);
    default:
      return tiled<LinearConfig<128, 128>>(stream, x, weight, y);
  }
}

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  const std::int64_t rows = x.size(0);
  if (rows == 0) return;
  if (y.dtype() == DType::kF32) return linear_swapped(stream, x, weight, y);
  if (rows > kFewRowsMax) {
    return linear_tiled(stream, x, weight, y,
                        choose_linear_tile({rows, weight.out, weight.in}, rose::cuda::multiprocessors(stream)));
  }
  const bool pairs = weight.out % 2 == 0 && y.stride(0) % 2 == 0 && reinterpret_cast<std::uintptr_t>(y.raw()) % 4 == 0;
  const int features = rows >= kBatchRowsMin && pairs ? linear_batch_features(stream, weight) : 0;
  if (features > 0) return linear_batch(stream, x, weight, y, features);
  linear_swapped(stream, x, weight, y);
}

}  // namespace rose::ops::cuda
