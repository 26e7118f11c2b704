#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"

#include "ops/check.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_cuda.h"

namespace rose::ops {

void reduce_add_rms_norm(const Stream& stream, Communicator& communicator, const Tensor& delta, const Tensor& residual,
                         const Tensor& weight, float epsilon, const Tensor& out) {
  check_activations(stream, "reduce_add_rms_norm: residual", residual, -1, -1);
  const std::int64_t rows = residual.size(0);
  const std::int64_t hidden = residual.size(1);
  if (!delta.empty()) check_activations(stream, "reduce_add_rms_norm: delta", delta, rows, hidden);
  check_tensor(stream, "reduce_add_rms_norm: weight", weight, {DType::kBf16}, {hidden});
  check_activations(stream, "reduce_add_rms_norm: out", out, rows, hidden);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::reduce_add_rms_norm(stream, communicator, delta, residual, weight, epsilon, out);
      return;
    case DeviceKind::kCuda:
      if (!delta.empty() && communicator.size() > 1) communicator.all_reduce(stream, delta);
      cuda::add_rms_norm(stream, delta, residual, weight, epsilon, out);
      return;
  }
}

}  // namespace rose::ops
