#include "ops/linear/linear.h"

#include "ops/check.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_quantizing_cuda.h"
#include "ops/linear/linear_x86.h"

namespace rose::ops {

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, const Tensor& scratch) {
  check_weight(stream, "linear: weight", weight);
  CHECK(weight.experts == 0, "linear: a weight of {} experts", weight.experts);
  check_activations(stream, "linear: x", x, -1, weight.in);
  check_activations(stream, "linear: y", y, x.size(0), weight.out);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      x86::linear(stream, x, weight, y);
      return;
    case DeviceKind::kCuda:
      if (weight.format != WeightFormat::kFp8) return cuda::linear(stream, x, weight, y);
      check_tensor(stream, "linear: scratch", scratch, {DType::kU8}, {-1});
      cuda::linear_quantizing(stream, x, weight, y, scratch);
      return;
  }
}

std::size_t linear_scratch_bytes(const Stream& stream, WeightFormat format, std::int64_t rows, std::int64_t in) {
  if (stream.device().is_cpu() || format != WeightFormat::kFp8) return 0;
  return quantized_bytes(rows, in).total();
}

}  // namespace rose::ops
