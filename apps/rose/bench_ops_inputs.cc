#include "bench_ops_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "ops/embed/embed.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/sample/sample.h"

namespace rose {
namespace {

std::vector<std::int32_t> random_integers(int count, std::uint64_t seed, int below) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(random_bits(seed, i) % static_cast<std::uint64_t>(below));
  }
  return values;
}

struct ResolveInputs {
  Tensor sources, last_tokens, tokens;
};

// Every row takes its sequence's last token, as in a step that only decodes.
PreparedOp prepare_resolve_tokens(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<std::int32_t> counting(static_cast<std::size_t>(c.rows));
  std::iota(counting.begin(), counting.end(), 0);
  std::vector<ResolveInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    inputs.push_back({.sources = memory->integers(counting, {c.rows}),
                      .last_tokens = memory->integers(random_integers(c.rows, seed, c.model.vocabulary), {c.rows}),
                      .tokens = memory->tensor(DType::kI32, {c.rows})});
  }
  const std::vector<Tensor> outputs = {inputs[0].tokens};
  return prepared(std::move(memory), std::move(inputs), outputs, [](const Stream& s, const ResolveInputs& in) {
    ops::resolve_tokens(s, in.sources, in.last_tokens, in.tokens);
  });
}

struct EmbedInputs {
  Tensor tokens, out;
};

PreparedOp prepare_embed(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const Tensor embedding = memory->random(DType::kBf16, {c.model.vocabulary, c.model.hidden});
  std::vector<EmbedInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    inputs.push_back({.tokens = memory->integers(random_integers(c.rows, seed, c.model.vocabulary), {c.rows}),
                      .out = memory->tensor(memory->activations(), {c.rows, c.model.hidden})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [embedding](const Stream& s, const EmbedInputs& in) { ops::embed(s, in.tokens, embedding, in.out); });
}

struct NormInputs {
  Tensor delta, residual, out;
};

PreparedOp prepare_norm(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const DType activations = memory->activations();
  const Tensor weight = memory->random(DType::kBf16, {c.model.hidden});
  std::vector<NormInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.delta = memory->random(activations, {c.rows, c.model.hidden}),
                      .residual = memory->random(activations, {c.rows, c.model.hidden}),
                      .out = memory->tensor(activations, {c.rows, c.model.hidden})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  const std::shared_ptr<Communicator> alone = make_solo_communicator();
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [alone, weight](const Stream& s, const NormInputs& in) {
                    ops::reduce_add_rms_norm(s, *alone, in.delta, in.residual, weight, 1e-5f, in.out);
                  });
}

struct GatherInputs {
  Tensor x, rows, out;
};

PreparedOp prepare_gather_rows(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<GatherInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    inputs.push_back({.x = memory->random(memory->activations(), {c.from_rows, c.model.hidden}),
                      .rows = memory->integers(random_integers(c.rows, seed, c.from_rows), {c.rows}),
                      .out = memory->tensor(memory->activations(), {c.rows, c.model.hidden})});
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [](const Stream& s, const GatherInputs& in) { ops::gather_rows(s, in.x, in.rows, in.out); });
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
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [](const Stream& s, const SampleTensors& t) { ops::sample(s, t.in, t.out); });
}

// Copies that touch cold_bytes together. Few rows find their experts one after another: as many copies as there are.
int copies_of(const OpCase& c, double cold_bytes) {
  if (c.kind == OpKind::kExperts && c.rows * c.model.experts_per_token >= c.experts) return 1;
  return static_cast<int>(std::clamp(std::ceil(cold_bytes / c.bytes), 1.0, double{kCopiesMax}));
}

// Unwritten, or not a number: bits all set, and what the format calls NaN.
bool is_bad(DType dtype, const std::byte* number) {
  const std::size_t width = dtype_bytes(dtype);
  std::uint32_t bits = 0;  // a bf16 is the upper half of its f32
  std::memcpy(reinterpret_cast<std::byte*>(&bits) + (4 - width), number, width);
  switch (dtype) {
    case DType::kI32:
      return static_cast<std::int32_t>(bits) < 0;
    case DType::kF8E4M3:
      return (bits & 0x7f000000u) == 0x7f000000u;
    default:
      return (bits & 0x7fffffffu) > 0x7f800000u;
  }
}

}  // namespace

PreparedOp prepare_op(const OpCase& c, const Stream& stream, const RandomFill& fill, double cold_bytes) {
  auto memory = std::make_unique<OpMemory>(stream, fill);
  const int copies = copies_of(c, cold_bytes);
  switch (c.kind) {
    case OpKind::kResolveTokens:
      return prepare_resolve_tokens(c, std::move(memory), copies);
    case OpKind::kEmbed:
      return prepare_embed(c, std::move(memory), copies);
    case OpKind::kNorm:
      return prepare_norm(c, std::move(memory), copies);
    case OpKind::kLinear:
      return prepare_linear(c, std::move(memory), copies);
    case OpKind::kRopeAppend:
      return prepare_rope_append(c, std::move(memory), copies);
    case OpKind::kAttentionPlan:
      return prepare_attention_plan(c, std::move(memory), copies);
    case OpKind::kAttention:
      return prepare_attention(c, std::move(memory), copies);
    case OpKind::kCopyPages:
      return prepare_copy_pages(c, std::move(memory), copies);
    case OpKind::kRoute:
      return prepare_route(c, std::move(memory), copies);
    case OpKind::kExperts:
      return prepare_experts(c, std::move(memory), copies);
    case OpKind::kGatherRows:
      return prepare_gather_rows(c, std::move(memory), copies);
    case OpKind::kSample:
      return prepare_sample(c, std::move(memory), copies);
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
    for (std::size_t at = 0; at < host.size(); at += width) bad += is_bad(output.dtype(), host.data() + at) ? 1 : 0;
  }
  return bad;
}

}  // namespace rose
