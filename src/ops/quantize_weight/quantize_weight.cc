#include "ops/quantize_weight/quantize_weight.h"

#include "ops/check.h"
#include "ops/quantize_weight/quantize_weight_cuda.h"

namespace rose::ops {

void quantize_weight(const Stream& stream, const Weight& from, const Weight& to, const Tensor& not_finite) {
  check_weight(stream, "quantize_weight: from", from);
  check_weight(stream, "quantize_weight: to", to);
  check_tensor(stream, "quantize_weight: not_finite", not_finite, {DType::kI32}, {1});
  CHECK(from.format == WeightFormat::kBf16 && to.format == WeightFormat::kFp8 && from.experts == 0 && to.experts == 0 &&
            from.out == to.out && from.in == to.in,
        "quantize_weight: {} [{}, {}] of {} experts to {} [{}, {}] of {}", weight_format_name(from.format), from.out,
        from.in, from.experts, weight_format_name(to.format), to.out, to.in, to.experts);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::quantize_weight(stream, from, to, not_finite);
      return;
    case DeviceKind::kCuda:
      cuda::quantize_weight(stream, from, to, not_finite);
      return;
  }
}

}  // namespace rose::ops
