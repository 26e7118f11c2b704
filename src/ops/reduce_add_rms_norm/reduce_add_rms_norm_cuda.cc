#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_cuda.h"

#include "device/cuda/gpu.h"
#include "ops/check.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_params.cuh"

namespace rose::ops::cuda {
namespace {

bool rows_aligned(const Tensor& tensor, std::size_t unit) {
  const auto row_bytes = static_cast<std::size_t>(tensor.stride(0)) * dtype_bytes(tensor.dtype());
  return (reinterpret_cast<std::uintptr_t>(tensor.raw()) | row_bytes) % unit == 0;
}

AddRmsNormParams checked_params(const Stream& stream, const Tensor& delta, const Tensor& residual, const Tensor& weight,
                                float epsilon, const Tensor& out) {
  check_activations(stream, "add_rms_norm: residual", residual, -1, -1);
  const std::int64_t rows = residual.size(0), hidden = residual.size(1);
  if (!delta.empty()) check_tensor(stream, "add_rms_norm: delta", delta, {DType::kBf16}, {rows, hidden});
  check_tensor(stream, "add_rms_norm: weight", weight, {DType::kBf16}, {hidden});
  check_tensor(stream, "add_rms_norm: out", out, {DType::kBf16}, {rows, hidden});
  CHECK(hidden > 0 && hidden % 8 == 0 && hidden <= AddRmsNormParams::kHiddenMax && rows_aligned(residual, 16) &&
            rows_aligned(out, 16) && reinterpret_cast<std::uintptr_t>(weight.raw()) % 16 == 0 &&
            (delta.empty() || rows_aligned(delta, 16)),
        "add_rms_norm on {}: residual {}, out {}", stream.device().name(), residual.describe(), out.describe());
  AddRmsNormParams params{};
  if (!delta.empty()) {
    params.delta = static_cast<const std::uint16_t*>(delta.raw());
    params.delta_stride = delta.stride(0);
  }
  params.residual = residual.raw();
  params.residual_stride = residual.stride(0);
  params.residual_f32 = residual.dtype() == DType::kF32;
  params.weight = static_cast<const std::uint16_t*>(weight.raw());
  params.out = static_cast<std::uint16_t*>(out.raw());
  params.out_stride = out.stride(0);
  params.rows = static_cast<int>(rows);
  params.hidden = static_cast<int>(hidden);
  params.epsilon = epsilon;
  return params;
}

}  // namespace

void add_rms_norm(const Stream& stream, const Tensor& delta, const Tensor& residual, const Tensor& weight,
                  float epsilon, const Tensor& out) {
  const AddRmsNormParams params = checked_params(stream, delta, residual, weight, epsilon, out);
  if (params.rows == 0) return;
  launch_add_rms_norm(params, rose::cuda::native_stream(stream));
}

void add_rms_norm(const Stream& stream, const Tensor& delta, const Tensor& residual, const Tensor& weight,
                  float epsilon, const Tensor& out, const QuantizedRows& quantized) {
  AddRmsNormParams params = checked_params(stream, delta, residual, weight, epsilon, out);
  const auto& [q, scales] = quantized;
  const int groups = (params.hidden + AddRmsNormParams::kGroup - 1) / AddRmsNormParams::kGroup;
  check_tensor(stream, "add_rms_norm: q", q, {DType::kF8E4M3}, {params.rows, params.hidden});
  check_tensor(stream, "add_rms_norm: scales", scales, {DType::kF32}, {groups, -1});
  CHECK(scales.size(1) >= params.rows && rows_aligned(q, 8), "add_rms_norm: q {}, scales {}", q.describe(),
        scales.describe());
  if (params.rows == 0) return;
  params.q = static_cast<std::uint8_t*>(q.raw());
  params.q_stride = q.stride(0);
  params.scales = scales.as<float>();
  params.scales_stride = scales.stride(0);
  launch_add_rms_norm(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
