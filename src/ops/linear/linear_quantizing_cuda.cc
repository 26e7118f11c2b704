#include "ops/linear/linear_quantizing_cuda.h"

#include "base/check.h"
#include "ops/linear/linear_fp8_cuda.h"

namespace rose::ops::cuda {

void linear_quantizing(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                       const Tensor& scratch) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  if (rows == 0) return;
  const QuantizedBytes bytes = quantized_bytes(rows, columns);
  CHECK(scratch.bytes() >= bytes.total(), "linear on {}: {} bytes of scratch for {}, not {}", stream.device().name(),
        scratch.bytes(), x.describe(), bytes.total());
  auto* memory = static_cast<std::byte*>(scratch.raw());
  const Tensor q(memory, DType::kF8E4M3, stream.device(), {rows, columns});
  const std::int64_t groups = (columns + QuantizedRows::kGroup - 1) / QuantizedRows::kGroup;
  const Tensor scales(memory + bytes.q, DType::kF32, stream.device(), {groups, bytes.scales_stride});
  const QuantizedRows quantized{q, scales};
  quantize_rows(stream, x, quantized);
  linear_fp8(stream, quantized, weight, y);
}

}  // namespace rose::ops::cuda
