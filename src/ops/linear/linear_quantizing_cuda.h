// linear.h with an FP8 weight on a GPU: x is rounded to e4m3, then multiplied (linear_fp8_cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"
#include "ops/linear/quantized_rows.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

// Room for QuantizedRows: q, then the scales with their rows at multiples of 16 bytes. Grows with rows and with
// columns.
struct QuantizedBytes {
  std::int64_t scales_stride = 0;  // elements
  std::size_t q = 0;               // up to a multiple of 256
  std::size_t scales = 0;

  std::size_t total() const { return q + scales; }
};
constexpr QuantizedBytes quantized_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t groups = (columns + cuda::QuantizedRows::kGroup - 1) / cuda::QuantizedRows::kGroup;
  QuantizedBytes bytes;
  bytes.scales_stride = (rows + 3) / 4 * 4;
  bytes.q = static_cast<std::size_t>((rows * columns + 255) / 256 * 256);
  bytes.scales = static_cast<std::size_t>(groups * bytes.scales_stride) * sizeof(float);
  return bytes;
}

namespace cuda {

// Arguments have been checked. x bf16, `in` a multiple of 16; scratch at a multiple of 16 bytes.
void linear_quantizing(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                       const Tensor& scratch);

}  // namespace cuda
}  // namespace rose::ops
