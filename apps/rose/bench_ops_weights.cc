// Inputs of the operations that read weights.
#include <algorithm>

#include "bench_ops_inputs.h"
#include "ops/experts/experts.h"
#include "ops/linear/linear.h"
#include "ops/quantize_weight/quantize_weight.h"
#include "ops/route/route.h"

namespace rose {
namespace {

// [experts,] rows, columns
Tensor stacked(OpMemory& memory, DType dtype, std::int64_t experts, std::int64_t rows, std::int64_t columns) {
  return experts > 0 ? memory.tensor(dtype, {experts, rows, columns}) : memory.tensor(dtype, {rows, columns});
}

// Matrix i of a stack, or the only one.
Tensor matrix_of(const Tensor& all, std::int64_t i) {
  const std::int64_t rows = all.size(-2), columns = all.size(-1);
  const auto bytes = static_cast<std::size_t>(rows * columns) * dtype_bytes(all.dtype());
  return {static_cast<std::byte*>(all.raw()) + static_cast<std::size_t>(i) * bytes,
          all.dtype(),
          all.device(),
          {rows, columns}};
}

// Rounds random matrices, as a start with --dense fp8 does.
void randomize_fp8(OpMemory& memory, Weight& weight) {
  const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
  weight.payload = stacked(memory, DType::kF8E4M3, weight.experts, weight.out, weight.in);
  weight.scales = stacked(memory, DType::kF32, weight.experts, tiles(weight.out), tiles(weight.in));
  memory.with_staging([&](OpMemory& staging) {
    const Tensor not_finite = staging.tensor(DType::kI32, {1}, 0);
    Weight from, to;
    from.out = to.out = weight.out;
    from.in = to.in = weight.in;
    from.payload = staging.tensor(DType::kBf16, {weight.out, weight.in});
    to.format = WeightFormat::kFp8;
    for (std::int64_t e = 0; e < std::max<std::int64_t>(1, weight.experts); ++e) {
      staging.randomize(from.payload);
      to.payload = matrix_of(weight.payload, e);
      to.scales = matrix_of(weight.scales, e);
      ops::quantize_weight(staging.stream(), from, to, not_finite);
    }
  });
}

// `experts` 0: a matrix.
Weight random_weight(OpMemory& memory, WeightFormat format, std::int64_t experts, std::int64_t out, std::int64_t in) {
  Weight weight;
  weight.format = format;
  weight.experts = experts;
  weight.out = out;
  weight.in = in;
  switch (format) {
    case WeightFormat::kBf16:
      weight.payload = stacked(memory, DType::kBf16, experts, out, in);
      memory.randomize(weight.payload);
      break;
    case WeightFormat::kFp8:
      randomize_fp8(memory, weight);
      break;
    case WeightFormat::kMxfp4:
      weight.payload = memory.random_bytes({experts, out, in / 2}, 0, 255);
      weight.scales = memory.random_bytes({experts, out, in / kMxfp4Group}, 116, 122);
      break;
  }
  weight.bias = experts > 0 ? memory.random(DType::kBf16, {experts, out}) : memory.random(DType::kBf16, {out});
  return weight;
}

struct LinearInputs {
  Tensor x;
  Weight weight;
  Tensor y;
};

struct RouteInputs {
  Tensor x;
  Weight router;
  ops::Routing routing;
};

// The kernels' own form of the scales, beside the payload; the stored form goes.
ops::ExpertScales prepared_scales(const Stream& stream, Weight& weight, Arena& arena, const Tensor& inexact) {
  if (stream.device().is_cpu()) return {};
  ops::ExpertScales scales = ops::prepare_expert_scales(stream, weight, arena, inexact);
  weight.scales = {};
  return scales;
}

}  // namespace

PreparedOp prepare_linear(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const DType out = c.out == c.model.vocabulary ? DType::kF32 : memory->activations();
  const auto scratch_bytes = ops::linear_scratch_bytes(memory->stream(), c.weights, c.rows, c.in);
  const Tensor scratch =
      scratch_bytes == 0 ? Tensor() : memory->tensor(DType::kU8, {static_cast<std::int64_t>(scratch_bytes)});
  std::vector<LinearInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.x = memory->random(memory->activations(), {c.rows, c.in}),
                      .weight = random_weight(*memory, c.weights, 0, c.out, c.in),
                      .y = memory->tensor(out, {c.rows, c.out})});
  }
  const std::vector<Tensor> outputs = {inputs[0].y};
  return prepared(std::move(memory), std::move(inputs), outputs, [scratch](const Stream& s, const LinearInputs& in) {
    ops::linear(s, in.x, in.weight, in.y, scratch);
  });
}

PreparedOp prepare_route(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<RouteInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.x = memory->random(memory->activations(), {c.rows, c.model.hidden}),
                      .router = random_weight(*memory, WeightFormat::kBf16, 0, c.experts, c.model.hidden),
                      .routing = {.experts = memory->tensor(DType::kI32, {c.rows, c.model.experts_per_token}),
                                  .weights = memory->tensor(DType::kF32, {c.rows, c.model.experts_per_token}),
                                  .logits = memory->tensor(DType::kF32, {c.rows, c.experts})}});
  }
  const std::vector<Tensor> outputs = {inputs[0].routing.experts, inputs[0].routing.weights};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [](const Stream& s, RouteInputs& in) { ops::route(s, in.x, in.router, in.routing); });
}

PreparedOp prepare_experts(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const Stream stream = memory->stream();
  ops::ExpertWeights weights{
      .gate_up = random_weight(*memory, c.weights, c.experts, 2 * std::int64_t{model.intermediate}, model.hidden),
      .down = random_weight(*memory, c.weights, c.experts, model.hidden, model.intermediate)};
  const auto arena =
      std::make_shared<Arena>(stream.device(),
                              std::max<std::size_t>(1, ops::prepared_scale_bytes(stream, weights.gate_up) +
                                                           ops::prepared_scale_bytes(stream, weights.down)),
                              "bench");
  const Tensor inexact = memory->tensor(DType::kI32, {1}, 0);
  weights.gate_up_scales = prepared_scales(stream, weights.gate_up, *arena, inexact);
  weights.down_scales = prepared_scales(stream, weights.down, *arena, inexact);
  weights.bf16_activations = c.bf16_activations;
  const ops::ExpertShape shape{.rows_max = c.rows,
                               .experts_per_token = model.experts_per_token,
                               .experts_held = c.experts,
                               .hidden = model.hidden,
                               .intermediate = model.intermediate};
  const Tensor scratch = memory->tensor(DType::kF32, {ops::experts_scratch_elements(stream, shape)}, 0);
  const Tensor x = memory->random(memory->activations(), {c.rows, model.hidden});
  const Tensor y = memory->tensor(memory->activations(), {c.rows, model.hidden});
  const Tensor shares = memory->random(DType::kF32, {c.rows, model.experts_per_token});
  std::vector<ops::Routing> routings;
  for (int i = 0; i < copies; ++i) {
    routings.push_back(
        {.experts = memory->integers(chosen_experts(c, i), {c.rows, model.experts_per_token}), .weights = shares});
  }
  // The arena holds the scales.
  return prepared(std::move(memory), std::move(routings), {y},
                  [arena, x, weights, scratch, y](const Stream& s, const ops::Routing& routing) {
                    ops::experts(s, x, routing, weights, 7, scratch, y);
                  });
}

}  // namespace rose
