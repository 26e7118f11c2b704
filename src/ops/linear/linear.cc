#include "ops/linear/linear.h"

#include "ops/check.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_x86.h"

namespace rose::ops {

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  check_weight(stream, "linear: weight", weight);
  CHECK(weight.experts == 0, "linear: a weight of {} experts", weight.experts);
  check_activations(stream, "linear: x", x, -1, weight.in);
  check_activations(stream, "linear: y", y, x.size(0), weight.out);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      x86::linear(stream, x, weight, y);
      return;
    case DeviceKind::kCuda:
      cuda::linear(stream, x, weight, y);
      return;
  }
}

}  // namespace rose::ops
