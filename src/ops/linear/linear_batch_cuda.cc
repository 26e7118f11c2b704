#include "ops/linear/linear_batch_cuda.h"

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/linear/linear_batch_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::MapType;
using rose::cuda::matrix_map;
using rose::cuda::Swizzle;

template <class Config>
void launch(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  LinearBatchParams params{};
  params.rows = static_cast<int>(x.size(0));
  params.out = static_cast<int>(weight.out);
  params.steps = static_cast<int>((weight.in + Config::kStepColumns - 1) / Config::kStepColumns);
  params.weight = matrix_map(weight.payload.raw(), MapType::kBf16, weight.out, weight.in, weight.in, Config::kFeatures,
                             Config::kStepColumns, Swizzle::k128);
  params.x = matrix_map(x.raw(), MapType::kBf16, params.rows, weight.in, x.stride(0), params.rows, Config::kStepColumns,
                        Swizzle::k128);
  params.bias = weight.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(weight.bias.raw());
  params.y = static_cast<std::uint16_t*>(y.raw());
  params.y_stride = y.stride(0);
  launch_linear_batch<Config>(params, rose::cuda::native_stream(stream));
}

template <int kFeatures>
void launch_rows(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  if (x.size(0) <= 64) return launch<LinearBatchConfig<64, kFeatures>>(stream, x, weight, y);
  launch<LinearBatchConfig<128, kFeatures>>(stream, x, weight, y);
}

}  // namespace

int linear_batch_features(const Stream& stream, const Weight& weight) {
  return choose_linear_batch_features(weight.out, weight.in, rose::cuda::multiprocessors(stream), [](int features) {
    return features == 80 ? linear_batch_clusters<LinearBatchConfig<128, 80>>()
                          : linear_batch_clusters<LinearBatchConfig<128, 48>>();
  });
}

void linear_batch(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, int features) {
  CHECK(weight.format == WeightFormat::kBf16 && x.dtype() == DType::kBf16 && y.dtype() == DType::kBf16 &&
            weight.in % 8 == 0 && weight.in > 64 && x.stride(0) % 8 == 0 && x.size(0) <= 128 && weight.out % 2 == 0 &&
            y.stride(0) % 2 == 0 && (features == 48 || features == 80),
        "linear on {}: {} weights, x {}, y {}, {} features a tile", stream.device().name(),
        weight_format_name(weight.format), x.describe(), y.describe(), features);
  if (x.size(0) == 0) return;
  if (features == 80) return launch_rows<80>(stream, x, weight, y);
  launch_rows<48>(stream, x, weight, y);
}

}  // namespace rose::ops::cuda
