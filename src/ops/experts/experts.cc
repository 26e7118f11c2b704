#include "ops/experts/experts.h"

#include "ops/check.h"
#include "ops/experts/experts_x86.h"
#include "ops/linear/linear_x86.h"

namespace rose::ops {

std::int64_t experts_scratch_elements(std::int64_t rows_max, std::int64_t experts_per_token, std::int64_t intermediate,
                                      std::int64_t hidden) {
  // Packed x of each row; packed activation and result of each (row, expert).
  return rows_max * (x86::packed_stride(hidden) + experts_per_token * (x86::packed_stride(intermediate) + hidden));
}

void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& scratch, const Tensor& y) {
  const Weight& gate_up = weights.gate_up;
  const Weight& down = weights.down;
  check_weight(stream, "experts: gate_up", gate_up);
  check_weight(stream, "experts: down", down);
  CHECK(gate_up.experts > 0 && gate_up.experts == down.experts, "experts: gate_up of {}, down of {} experts",
        gate_up.experts, down.experts);
  CHECK(gate_up.out == 2 * down.in && gate_up.in == down.out, "experts: gate_up {} x {}, down {} x {}", gate_up.out,
        gate_up.in, down.out, down.in);
  CHECK(weights.first_expert >= 0, "experts: first expert {}", weights.first_expert);
  check_activations(stream, "experts: x", x, -1, gate_up.in);
  const std::int64_t rows = x.size(0);
  check_activations(stream, "experts: y", y, rows, down.out);
  check_tensor(stream, "experts: routing.experts", routing.experts, {DType::kI32}, {rows, -1});
  const std::int64_t per_token = routing.experts.size(1);
  check_tensor(stream, "experts: routing.weights", routing.weights, {DType::kF32}, {rows, per_token});
  const std::int64_t needed = experts_scratch_elements(rows, per_token, down.in, down.out);
  CHECK(scratch.elements() >= needed && scratch.contiguous() && (needed == 0 || scratch.dtype() == DType::kF32),
        "experts: scratch {}, {} floats needed", scratch.describe(), needed);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      x86::experts(stream, x, routing, weights, swiglu_limit, scratch, y);
      return;
    case DeviceKind::kCuda:
      no_kernel("experts", stream);
  }
}

}  // namespace rose::ops
