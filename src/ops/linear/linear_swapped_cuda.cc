#include "ops/linear/linear_swapped_cuda.h"

#include <cstdint>

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/linear/linear_swapped_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::MapType;
using rose::cuda::matrix_map;
using rose::cuda::Swizzle;

LinearSwappedParams common_params(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                                  bool fp8) {
  CHECK(y.dtype() == DType::kBf16 || y.dtype() == DType::kF32, "linear on {}: y {}", stream.device().name(),
        y.describe());
  const int step_columns = LinearSwappedShape::kStepBytes / (fp8 ? 1 : 2);
  LinearSwappedParams params{};
  params.rows = static_cast<int>(x.size(0));
  params.out = static_cast<int>(weight.out);
  params.steps = static_cast<int>((weight.in + step_columns - 1) / step_columns);
  const MapType type = fp8 ? MapType::kByte : MapType::kBf16;
  const int tile_rows = LinearSwappedShape::tile_rows(params.rows, params.out, fp8);
  params.weight = matrix_map(weight.payload.raw(), type, weight.out, weight.in, weight.in,
                             LinearSwappedShape::kFeatures, step_columns, Swizzle::k128);
  params.x = matrix_map(x.raw(), type, params.rows, weight.in, x.stride(0), tile_rows, step_columns, Swizzle::k128);
  params.bias = weight.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(weight.bias.raw());
  params.y = y.raw();
  params.y_stride = y.stride(0);
  params.y_is_f32 = y.dtype() == DType::kF32;
  const std::uintptr_t pair = params.y_is_f32 ? 8 : 4;
  params.y_pairs = y.stride(0) % 2 == 0 && reinterpret_cast<std::uintptr_t>(y.raw()) % pair == 0;
  params.y_quads = params.y_is_f32 && y.stride(0) % 4 == 0 && weight.out % 4 == 0 &&
                   reinterpret_cast<std::uintptr_t>(y.raw()) % 16 == 0;
  params.splits = choose_linear_splits(weight.out, params.steps, linear_swapped_clusters);
  return params;
}

}  // namespace

void linear_swapped(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  CHECK(weight.format == WeightFormat::kBf16 && x.dtype() == DType::kBf16 && weight.in % 8 == 0 && x.stride(0) % 8 == 0,
        "linear on {}: {} weights, x {}, rows {} apart", stream.device().name(), weight_format_name(weight.format),
        x.describe(), x.stride(0));
  if (x.size(0) == 0) return;
  launch_linear_swapped(common_params(stream, x, weight, y, false), false, rose::cuda::multiprocessors(stream),
                        rose::cuda::native_stream(stream));
}

void linear_swapped(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y) {
  CHECK(weight.format == WeightFormat::kFp8 && x.q.dtype() == DType::kF8E4M3 && weight.in % 16 == 0 &&
            x.q.stride(0) % 16 == 0 && x.scales.stride(0) % 4 == 0,
        "linear on {}: {} weights, x {}, scales {}", stream.device().name(), weight_format_name(weight.format),
        x.q.describe(), x.scales.describe());
  if (x.q.size(0) == 0) return;
  LinearSwappedParams params = common_params(stream, x.q, weight, y, true);
  params.x_scales = matrix_map(x.scales.raw(), MapType::kF32, params.steps, params.rows, x.scales.stride(0), 1,
                               LinearSwappedShape::tile_rows(params.rows, params.out, true), Swizzle::kNone);
  params.weight_scales = weight.scales.as<float>();
  launch_linear_swapped(params, true, rose::cuda::multiprocessors(stream), rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
