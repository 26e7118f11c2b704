#include "ops/experts/experts.h"

#include "ops/check.h"
#include "ops/experts/experts_cuda.h"
#include "ops/experts/experts_x86.h"
#include "ops/linear/linear_x86.h"

namespace rose::ops {
namespace {

cuda::ExpertWorkShape work_shape(const ExpertShape& shape) {
  return {.rows_max = static_cast<int>(shape.rows_max),
          .experts_per_token = static_cast<int>(shape.experts_per_token),
          .experts_held = static_cast<int>(shape.experts_held),
          .hidden = static_cast<int>(shape.hidden),
          .intermediate = static_cast<int>(shape.intermediate)};
}

void check_expert_weight(const Stream& stream, std::string_view name, const Weight& weight,
                         const ExpertScales& scales) {
  if (stream.device().is_cpu()) return check_weight(stream, name, weight);
  CHECK(!weight.payload.empty() && weight.payload.device() == stream.device() && weight.scales.empty() &&
            !scales.bases.empty(),
        "{}: payload {}, and prepared scales {}", name, weight.payload.describe(), scales.bases.describe());
}

}  // namespace

std::size_t prepared_scale_bytes(const Stream& stream, const Weight& shape) {
  if (stream.device().is_cpu()) return 0;
  const auto aligned = [](std::int64_t bytes) { return Arena::aligned(static_cast<std::size_t>(bytes)); };
  return aligned(cuda::expert_scale_bytes(shape.format, shape.experts, shape.out, shape.in)) +
         aligned(cuda::expert_base_bytes(shape.experts, shape.out, shape.in));
}

ExpertScales prepare_expert_scales(const Stream& stream, const Weight& stored, Arena& arena,
                                   const Tensor& inexact_tiles) {
  check_weight(stream, "experts: stored", stored);
  const auto scale_bytes = cuda::expert_scale_bytes(stored.format, stored.experts, stored.out, stored.in);
  const auto base_bytes = cuda::expert_base_bytes(stored.experts, stored.out, stored.in);
  void* const scales = arena.take("expert scales", static_cast<std::size_t>(scale_bytes));
  void* const bases = arena.take("expert bases", static_cast<std::size_t>(base_bytes));
  return cuda::prepare_scales(stream, stored, scales, bases, inexact_tiles.as<std::int32_t>());
}

std::int64_t experts_scratch_elements(const Stream& stream, const ExpertShape& shape) {
  if (!stream.device().is_cpu()) {
    return static_cast<std::int64_t>((cuda::expert_work_bytes(work_shape(shape)) + 3) / 4);
  }
  // Packed x of each row; packed activation and result of each (row, expert).
  return shape.rows_max * (x86::packed_stride(shape.hidden) +
                           shape.experts_per_token * (x86::packed_stride(shape.intermediate) + shape.hidden));
}

void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& scratch, const Tensor& y) {
  const Weight& gate_up = weights.gate_up;
  const Weight& down = weights.down;
  check_expert_weight(stream, "experts: gate_up", gate_up, weights.gate_up_scales);
  check_expert_weight(stream, "experts: down", down, weights.down_scales);
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
  const ExpertShape shape{.rows_max = rows,
                          .experts_per_token = per_token,
                          .experts_held = down.experts,
                          .hidden = down.out,
                          .intermediate = down.in};
  const std::int64_t needed = experts_scratch_elements(stream, shape);
  CHECK(scratch.elements() >= needed && scratch.contiguous() && (needed == 0 || scratch.dtype() == DType::kF32),
        "experts: scratch {}, {} floats needed", scratch.describe(), needed);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      x86::experts(stream, x, routing, weights, swiglu_limit, scratch, y);
      return;
    case DeviceKind::kCuda:
      cuda::experts(stream, {.x = x,
                             .routing = routing,
                             .weights = weights,
                             .swiglu_limit = swiglu_limit,
                             .work = {.shape = work_shape(shape), .memory = scratch.raw()},
                             .y = y,
                             .bf16_activations = weights.bf16_activations});
      return;
  }
}

}  // namespace rose::ops
