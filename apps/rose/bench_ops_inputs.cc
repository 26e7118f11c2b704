#include "bench_ops_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/experts/experts.h"
#include "ops/linear/linear.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/rope_append/rope_append.h"
#include "ops/route/route.h"
#include "ops/sample/sample.h"

namespace rose {

OpMemory::~OpMemory() {
  for (void* pointer : owned_) device_free(stream_.device(), pointer);
}

void* OpMemory::bytes(std::size_t count, int byte) {
  constexpr std::uintptr_t kAlignment = 1024;
  void* const slab = device_allocate(stream_.device(), count + kAlignment);
  owned_.push_back(slab);
  device_fill(stream_.device(), slab, byte, count + kAlignment);
  const std::uintptr_t skip = (kAlignment - reinterpret_cast<std::uintptr_t>(slab) % kAlignment) % kAlignment;
  return static_cast<std::byte*>(slab) + skip;
}

Tensor OpMemory::tensor(DType dtype, std::initializer_list<std::int64_t> sizes, int byte) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return {bytes(static_cast<std::size_t>(elements) * dtype_bytes(dtype), byte), dtype, stream_.device(), sizes};
}

Tensor OpMemory::random(DType dtype, std::initializer_list<std::int64_t> sizes, float size) {
  const Tensor out = tensor(dtype, sizes);
  fill_.numbers(stream_, out, ++seed_, size);
  return out;
}

Tensor OpMemory::random_bytes(std::initializer_list<std::int64_t> sizes, int low, int high) {
  const Tensor out = tensor(DType::kU8, sizes);
  fill_.bytes(stream_, out, ++seed_, low, high);
  return out;
}

void OpMemory::copy_in(void* to, const void* from, std::size_t count) {
  copy_async(stream_, to, from, count);
  stream_.synchronize();
}

Tensor OpMemory::integers(const std::vector<std::int32_t>& values, std::initializer_list<std::int64_t> sizes) {
  const Tensor out = tensor(DType::kI32, sizes);
  CHECK(out.elements() == static_cast<std::int64_t>(values.size()), "{} of {} values", out.describe(), values.size());
  copy_in(out.raw(), values.data(), out.bytes());
  return out;
}

namespace {

// Activations: bf16 on a GPU; a CPU computes in f32.
DType activations_of(const OpMemory& memory) { return memory.stream().device().is_cpu() ? DType::kF32 : DType::kBf16; }

Weight random_matrix(OpMemory& memory, std::int64_t out, std::int64_t in) {
  Weight weight;
  weight.out = out;
  weight.in = in;
  weight.payload = memory.random(DType::kBf16, {out, in});
  weight.bias = memory.random(DType::kBf16, {out});
  return weight;
}

struct LinearInputs {
  Tensor x;
  Weight weight;
  Tensor y;
};

PreparedOp prepare_linear(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const DType activations = activations_of(*memory);
  const DType out = c.out == c.model.vocabulary ? DType::kF32 : activations;
  std::vector<LinearInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.x = memory->random(activations, {c.rows, c.in}),
                      .weight = random_matrix(*memory, c.out, c.in),
                      .y = memory->tensor(out, {c.rows, c.out})});
  }
  const std::vector<Tensor> outputs = {inputs[0].y};
  const Stream stream = memory->stream();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                const LinearInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::linear(stream, in.x, in.weight, in.y);
              },
          .outputs = outputs};
}

struct EmbedInputs {
  Tensor tokens;
  Tensor out;
};

PreparedOp prepare_embed(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const Tensor embedding = memory->random(DType::kBf16, {c.model.vocabulary, c.model.hidden});
  std::vector<EmbedInputs> inputs;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.rows));
  for (int i = 0; i < copies; ++i) {
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      tokens[r] = static_cast<std::int32_t>(random_bits(static_cast<std::uint64_t>(i), r) %
                                            static_cast<std::uint64_t>(c.model.vocabulary));
    }
    inputs.push_back({.tokens = memory->integers(tokens, {c.rows}),
                      .out = memory->tensor(activations_of(*memory), {c.rows, c.model.hidden})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  const Stream stream = memory->stream();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                const EmbedInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::embed(stream, in.tokens, embedding, in.out);
              },
          .outputs = outputs};
}

struct NormInputs {
  Tensor delta, residual, out;
};

PreparedOp prepare_norm(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const DType activations = activations_of(*memory);
  const Tensor weight = memory->random(DType::kBf16, {c.model.hidden});
  std::vector<NormInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.delta = memory->random(activations, {c.rows, c.model.hidden}),
                      .residual = memory->random(activations, {c.rows, c.model.hidden}),
                      .out = memory->tensor(activations, {c.rows, c.model.hidden})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  const Stream stream = memory->stream();
  const std::shared_ptr<Communicator> alone = make_solo_communicator();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                const NormInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::reduce_add_rms_norm(stream, *alone, in.delta, in.residual, weight, 1e-5f, in.out);
              },
          .outputs = outputs};
}

struct RouteInputs {
  Tensor x;
  Weight router;
  ops::Routing routing;
};

PreparedOp prepare_route(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<RouteInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.x = memory->random(activations_of(*memory), {c.rows, c.model.hidden}),
                      .router = random_matrix(*memory, c.experts, c.model.hidden),
                      .routing = {.experts = memory->tensor(DType::kI32, {c.rows, c.model.experts_per_token}),
                                  .weights = memory->tensor(DType::kF32, {c.rows, c.model.experts_per_token}),
                                  .logits = memory->tensor(DType::kF32, {c.rows, c.experts})}});
  }
  const std::vector<Tensor> outputs = {inputs[0].routing.experts, inputs[0].routing.weights};
  const Stream stream = memory->stream();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) mutable {
                RouteInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::route(stream, in.x, in.router, in.routing);
              },
          .outputs = outputs};
}

struct SampleTensors {
  ops::SampleInputs in;
  ops::SampleOutputs out;
};

PreparedOp prepare_sample(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<SampleTensors> inputs;
  for (int i = 0; i < copies; ++i) {
    std::vector<ops::SampleRow> rows(static_cast<std::size_t>(c.rows));
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].seed = r + 1, rows[r].slot = static_cast<std::int32_t>(r);
    const std::size_t bytes = rows.size() * sizeof(ops::SampleRow);
    auto* const on_device = static_cast<ops::SampleRow*>(memory->bytes(bytes, 0));
    memory->copy_in(on_device, rows.data(), bytes);
    inputs.push_back({.in = {.logits = memory->random(DType::kF32, {c.rows, c.model.vocabulary}, 8),
                             .rows = on_device,
                             .adjustments = nullptr,
                             .masks = {}},
                      .out = {.tokens = memory->tensor(DType::kI32, {c.rows}),
                              .logprobs = memory->tensor(DType::kF32, {c.rows}),
                              .top_tokens = memory->tensor(DType::kI32, {c.rows, ops::kTopLogprobsMax}),
                              .top_logprobs = memory->tensor(DType::kF32, {c.rows, ops::kTopLogprobsMax}),
                              .last_tokens = memory->tensor(DType::kI32, {c.rows})}});
  }
  const std::vector<Tensor> outputs = {inputs[0].out.tokens, inputs[0].out.last_tokens};
  const Stream stream = memory->stream();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                const SampleTensors& s = inputs[static_cast<std::size_t>(i)];
                ops::sample(stream, s.in, s.out);
              },
          .outputs = outputs};
}

Weight random_experts(OpMemory& memory, std::int64_t experts, std::int64_t out, std::int64_t in) {
  Weight weight;
  weight.format = WeightFormat::kMxfp4;
  weight.experts = experts;
  weight.out = out;
  weight.in = in;
  weight.payload = memory.random_bytes({experts, out, in / 2}, 0, 255);
  weight.scales = memory.random_bytes({experts, out, in / kMxfp4Group}, 116, 122);
  weight.bias = memory.random(DType::kBf16, {experts, out});
  return weight;
}

// The kernels' own form of the scales, beside the payload; the stored form goes.
ops::ExpertScales prepared_scales(const Stream& stream, Weight& weight, Arena& arena, const Tensor& inexact) {
  if (stream.device().is_cpu()) return {};
  ops::ExpertScales scales = ops::prepare_expert_scales(stream, weight, arena, inexact);
  weight.scales = {};
  return scales;
}

PreparedOp prepare_experts(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const Stream stream = memory->stream();
  ops::ExpertWeights weights{
      .gate_up = random_experts(*memory, c.experts, 2 * std::int64_t{model.intermediate}, model.hidden),
      .down = random_experts(*memory, c.experts, model.hidden, model.intermediate)};
  const auto arena =
      std::make_shared<Arena>(stream.device(),
                              std::max<std::size_t>(1, ops::prepared_scale_bytes(stream, weights.gate_up) +
                                                           ops::prepared_scale_bytes(stream, weights.down)),
                              "bench");
  const Tensor inexact = memory->tensor(DType::kI32, {1}, 0);
  weights.gate_up_scales = prepared_scales(stream, weights.gate_up, *arena, inexact);
  weights.down_scales = prepared_scales(stream, weights.down, *arena, inexact);
  const ops::ExpertShape shape{.rows_max = c.rows,
                               .experts_per_token = model.experts_per_token,
                               .experts_held = c.experts,
                               .hidden = model.hidden,
                               .intermediate = model.intermediate};
  const Tensor scratch = memory->tensor(DType::kF32, {ops::experts_scratch_elements(stream, shape)}, 0);
  const Tensor x = memory->random(activations_of(*memory), {c.rows, model.hidden});
  const Tensor y = memory->tensor(activations_of(*memory), {c.rows, model.hidden});
  const Tensor shares = memory->random(DType::kF32, {c.rows, model.experts_per_token});
  std::vector<ops::Routing> routings;
  for (int i = 0; i < copies; ++i) {
    routings.push_back(
        {.experts = memory->integers(chosen_experts(c, i), {c.rows, model.experts_per_token}), .weights = shares});
  }
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                (void)arena;  // holds the scales
                ops::experts(stream, x, routings[static_cast<std::size_t>(i)], weights, 7, scratch, y);
              },
          .outputs = {y}};
}

constexpr int kPageSize = 32;

ops::RopeConfig rope_config(const OpCase& c) {
  ops::RopeConfig config;
  config.head_dim = c.model.head_dim;
  return config;
}

KvLayer random_kv(OpMemory& memory, const OpShapes& model, std::int64_t pages) {
  return {.keys = memory.random(DType::kBf16, {pages, model.kv_heads, kPageSize, model.head_dim}),
          .values = memory.random(DType::kBf16, {pages, model.kv_heads, kPageSize, model.head_dim}),
          .page_size = kPageSize};
}

struct RopeInputs {
  Tensor qkv, slots, q;
};

PreparedOp prepare_rope_append(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const DType activations = activations_of(*memory);
  KvLayer kv = random_kv(*memory, model, static_cast<std::int64_t>(copies) * ((c.rows + kPageSize - 1) / kPageSize));
  ops::Rope rope(rope_config(c));
  rope.table = memory->tensor(DType::kF32, {static_cast<std::int64_t>(rope.frequencies.size())});
  memory->copy_in(rope.table.raw(), rope.frequencies.data(), rope.table.bytes());
  std::vector<std::int32_t> counting(static_cast<std::size_t>(c.rows));
  std::iota(counting.begin(), counting.end(), 0);
  const Tensor positions = memory->integers(counting, {c.rows});
  std::vector<RopeInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const int first = i * ((c.rows + kPageSize - 1) / kPageSize) * kPageSize;
    std::iota(counting.begin(), counting.end(), first);
    inputs.push_back({.qkv = memory->random(activations, {c.rows, (model.heads + 2 * model.kv_heads) * model.head_dim}),
                      .slots = memory->integers(counting, {c.rows}),
                      .q = memory->tensor(activations, {c.rows, model.heads, model.head_dim})});
  }
  const std::vector<Tensor> outputs = {inputs[0].q};
  const Stream stream = memory->stream();
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) mutable {
                const RopeInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::rope_append(stream, in.qkv, positions, in.slots, rope, kv, in.q);
              },
          .outputs = outputs};
}

struct AttentionInputs {
  ops::AttentionPlan plan;
  Tensor q, out;
};

// Entries of `copies` page tables of a batch: every page once, in random order.
std::vector<std::int32_t> shuffled_pages(std::size_t pages) {
  std::vector<std::int32_t> table(pages);
  std::iota(table.begin(), table.end(), 0);
  for (std::size_t i = pages; i > 1; --i) std::swap(table[i - 1], table[random_bits(5, i) % i]);
  return table;
}

ops::AttentionPlan plan_of(const OpCase& c, OpMemory& memory, const Tensor& page_table, int oldest) {
  const int rows_each = c.rows / c.sequences;
  std::vector<std::int32_t> offsets;
  for (int s = 0; s <= c.sequences; ++s) offsets.push_back(s * rows_each);
  const auto sequences = static_cast<std::size_t>(c.sequences);
  ops::AttentionPlan plan{
      .window = c.window,
      .sequences = c.sequences,
      .rows = c.rows,
      .rows_longest = rows_each,
      .context_longest = c.context,
      .reads_own_rows = false,
      .row_offsets = memory.integers(offsets, {c.sequences + 1}),
      .context_lengths = memory.integers(std::vector<std::int32_t>(sequences, c.context), {c.sequences}),
      .page_table = page_table,
      .first_pages = memory.integers(std::vector<std::int32_t>(sequences, oldest / kPageSize), {c.sequences}),
      .work = {.shape = {.rows_max = c.rows, .sequences_max = c.sequences, .kv_heads = c.model.kv_heads}}};
  plan.work.memory = memory.bytes(ops::attention_work_bytes(memory.stream(), plan.work.shape), 0);
  ops::plan_attention(memory.stream(), plan, kPageSize);
  return plan;
}

PreparedOp prepare_attention(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const DType activations = activations_of(*memory);
  // A windowed set has given back the pages that no row sees any more.
  const int first_seen = c.window > 0 ? std::max(0, c.context - c.rows / c.sequences - c.window + 1) : 0;
  const int oldest = first_seen / kPageSize * kPageSize;
  const std::int64_t pages_each = (c.context - oldest + kPageSize - 1) / kPageSize;
  const std::int64_t tables = std::int64_t{copies} * c.sequences, pages = tables * pages_each;
  const KvLayer kv = random_kv(*memory, model, pages);
  const Tensor table = memory->integers(shuffled_pages(static_cast<std::size_t>(pages)), {tables, pages_each});
  const Tensor sinks = memory->random(DType::kBf16, {model.heads});
  std::vector<AttentionInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const std::int64_t first = std::int64_t{i} * c.sequences;
    inputs.push_back({.plan = plan_of(c, *memory, table.rows(first, first + c.sequences), oldest),
                      .q = memory->random(activations, {c.rows, model.heads, model.head_dim}),
                      .out = memory->tensor(activations, {c.rows, model.heads * model.head_dim})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  const Stream stream = memory->stream();
  const float scale = 1 / std::sqrt(static_cast<float>(model.head_dim));
  return {.memory = std::move(memory),
          .copies = copies,
          .launch =
              [=](int i) {
                const AttentionInputs& in = inputs[static_cast<std::size_t>(i)];
                ops::attention(stream, in.q, kv, in.plan, sinks, scale, in.out);
              },
          .outputs = outputs};
}

// Copies that touch cold_bytes together. Few rows find their experts one after another: as many copies as there are.
int copies_of(const OpCase& c, double cold_bytes) {
  if (c.kind == OpKind::kExperts && c.rows * c.model.experts_per_token >= c.experts) return 1;
  return static_cast<int>(std::clamp(std::ceil(cold_bytes / c.bytes), 1.0, double{kCopiesMax}));
}

}  // namespace

PreparedOp prepare_op(const OpCase& c, const Stream& stream, const RandomFill& fill, double cold_bytes) {
  auto memory = std::make_unique<OpMemory>(stream, fill);
  const int copies = copies_of(c, cold_bytes);
  switch (c.kind) {
    case OpKind::kAttention:
      return prepare_attention(c, std::move(memory), copies);
    case OpKind::kExperts:
      return prepare_experts(c, std::move(memory), copies);
    case OpKind::kLinear:
      return prepare_linear(c, std::move(memory), copies);
    case OpKind::kNorm:
      return prepare_norm(c, std::move(memory), copies);
    case OpKind::kRopeAppend:
      return prepare_rope_append(c, std::move(memory), copies);
    case OpKind::kRoute:
      return prepare_route(c, std::move(memory), copies);
    case OpKind::kSample:
      return prepare_sample(c, std::move(memory), copies);
    case OpKind::kEmbed:
      return prepare_embed(c, std::move(memory), copies);
  }
  check_failed(__FILE__, __LINE__, "OpKind", "");
}

std::int64_t bad_numbers(const PreparedOp& op) {
  std::int64_t bad = 0;
  for (const Tensor& output : op.outputs) {
    constexpr std::size_t kBytesMax = 64u << 20;
    std::vector<std::byte> host(std::min(output.bytes(), kBytesMax));
    const auto* const end = static_cast<const std::byte*>(output.raw()) + output.bytes();
    copy_async(op.memory->stream(), host.data(), end - host.size(), host.size());
    op.memory->stream().synchronize();
    const std::size_t width = dtype_bytes(output.dtype());
    for (std::size_t at = 0; at < host.size(); at += width) {
      std::uint32_t bits = 0;  // a bf16 is the upper half of its f32
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + (4 - width), host.data() + at, width);
      const bool integer = output.dtype() == DType::kI32;
      bad += integer ? static_cast<std::int32_t>(bits) < 0 : (bits & 0x7fffffffu) > 0x7f800000u;
    }
  }
  return bad;
}

}  // namespace rose
