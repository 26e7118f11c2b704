#include "ops/linear/linear_fp8_cuda.h"

#include <algorithm>
#include <cstdint>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/check.h"
#include "ops/linear/linear_config.h"
#include "ops/linear/linear_fp8_params.cuh"
#include "ops/linear/linear_swapped_cuda.h"

namespace rose::ops::cuda {
namespace {

using rose::cuda::MapType;
using rose::cuda::matrix_map;
using rose::cuda::Swizzle;

constexpr int kRowsOfSwapped = 128;

std::uintptr_t address(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); }

template <class Config>
void tiled(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y) {
  LinearFp8Params params{};
  params.rows = static_cast<int>(x.q.size(0));
  params.out = static_cast<int>(weight.out);
  params.in = static_cast<int>(weight.in);
  params.x = matrix_map(x.q.raw(), MapType::kByte, params.rows, params.in, x.q.stride(0), Config::kM, Config::kK,
                        Swizzle::k128);
  params.weight = matrix_map(weight.payload.raw(), MapType::kByte, params.out, params.in, params.in, Config::kN,
                             Config::kK, Swizzle::k128);
  params.x_scales = matrix_map(x.scales.raw(), MapType::kF32, (params.in + 127) / 128, params.rows, x.scales.stride(0),
                               1, Config::kM, Swizzle::kNone);
  params.weight_scales = weight.scales.as<float>();
  params.bias = weight.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(weight.bias.raw());
  params.y = y.raw();
  params.y_stride = y.stride(0);
  params.y_is_f32 = y.dtype() == DType::kF32;
  params.y_pieces = !params.y_is_f32 && params.out % 8 == 0 && y.stride(0) % 8 == 0 && address(y) % 16 == 0;
  const int tiles = ((params.rows + Config::kM - 1) / Config::kM) * ((params.out + Config::kN - 1) / Config::kN);
  launch_linear_fp8<Config>(params, std::min(tiles, rose::cuda::multiprocessors(stream)),
                            rose::cuda::native_stream(stream));
}

}  // namespace

void linear_fp8_tiled(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y, int n) {
  CHECK(weight.format == WeightFormat::kFp8 && x.q.dtype() == DType::kF8E4M3 && weight.in % 16 == 0 &&
            x.q.stride(0) % 16 == 0 && x.scales.stride(0) % 4 == 0 &&
            (y.dtype() == DType::kBf16 || y.dtype() == DType::kF32),
        "linear on {}: {} weights, x {}, scales {}, y {}", stream.device().name(), weight_format_name(weight.format),
        x.q.describe(), x.scales.describe(), y.describe());
  if (x.q.size(0) == 0) return;
  if (n == 160) return tiled<LinearFp8Config<160>>(stream, x, weight, y);
  tiled<LinearFp8Config<128>>(stream, x, weight, y);
}

void linear_fp8(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y) {
  const std::int64_t rows = x.q.size(0);
  if (rows <= kRowsOfSwapped) return linear_swapped(stream, x, weight, y);
  linear_fp8_tiled(stream, x, weight, y,
                   choose_linear_fp8_width({rows, weight.out, weight.in}, rose::cuda::multiprocessors(stream)));
}

void quantize_rows(const Stream& stream, const Tensor& x, const QuantizedRows& quantized) {
  const auto& [q, scales] = quantized;
  const std::int64_t rows = x.size(0), columns = x.size(1);
  check_tensor(stream, "quantize_rows: x", x, {DType::kBf16}, {-1, -1});
  check_tensor(stream, "quantize_rows: q", q, {DType::kF8E4M3}, {rows, columns});
  check_tensor(stream, "quantize_rows: scales", scales, {DType::kF32}, {(columns + 127) / 128, -1});
  CHECK(columns % 8 == 0 && x.stride(0) % 8 == 0 && address(x) % 16 == 0 && q.stride(0) % 8 == 0 &&
            address(q) % 8 == 0 && scales.size(1) >= rows,
        "quantize_rows on {}: x {}, q {}, scales {}", stream.device().name(), x.describe(), q.describe(),
        scales.describe());
  if (rows == 0) return;
  QuantizeParams params{};
  params.x = static_cast<const std::uint16_t*>(x.raw());
  params.q = static_cast<std::uint8_t*>(q.raw());
  params.scales = scales.as<float>();
  params.x_stride = x.stride(0);
  params.q_stride = q.stride(0);
  params.scales_stride = scales.stride(0);
  params.rows = static_cast<int>(rows);
  params.columns = static_cast<int>(columns);
  launch_quantize_rows(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
