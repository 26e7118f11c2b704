// Inputs of the operations that work on pages of keys and values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "bench_ops_inputs.h"
#include "ops/attention/attention.h"
#include "ops/copy_pages/copy_pages.h"
#include "ops/rope_append/rope_append.h"

namespace rose {
namespace {

std::int64_t pages_of(std::int64_t positions) { return (positions + kOpPageSize - 1) / kOpPageSize; }

std::vector<std::int32_t> counting_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), static_cast<std::int32_t>(first));
  return numbers;
}

ops::Rope random_rope(OpMemory& memory, const OpShapes& model) {
  ops::RopeConfig config;
  config.head_dim = model.head_dim;
  ops::Rope rope(config);
  rope.table = memory.tensor(DType::kF32, {static_cast<std::int64_t>(rope.frequencies.size())});
  memory.copy_in(rope.table.raw(), rope.frequencies.data(), rope.table.bytes());
  return rope;
}

std::int64_t qkv_width(const OpShapes& model) {
  return (model.heads + 2 * std::int64_t{model.kv_heads}) * model.head_dim;
}

// By the operation itself, which rounds rows to the pages' format.
void append_random_rows(OpMemory& memory, const OpShapes& model, KvLayer& kv) {
  constexpr std::int64_t kRowsMax = 8192;
  memory.with_staging([&](OpMemory& staging) {
    const std::int64_t slots = kv.slots(), rows_max = std::min(slots, kRowsMax);
    const ops::Rope rope = random_rope(staging, model);
    const Tensor qkv = staging.tensor(staging.activations(), {rows_max, qkv_width(model)});
    const Tensor q = staging.tensor(staging.activations(), {rows_max, model.heads, model.head_dim});
    const Tensor numbers = staging.integers(counting_from(0, slots), {slots});
    for (std::int64_t first = 0; first < slots; first += rows_max) {
      const std::int64_t rows = std::min(rows_max, slots - first);
      staging.randomize(qkv);
      ops::rope_append(staging.stream(), qkv.rows(0, rows), numbers.rows(0, rows), numbers.rows(first, first + rows),
                       rope, kv, q.rows(0, rows));
    }
  });
}

KvLayer unwritten_kv(OpMemory& memory, const OpShapes& model, DType dtype, std::int64_t pages) {
  return {.keys = memory.tensor(dtype, {pages, model.kv_heads, kOpPageSize, model.head_dim}),
          .values = memory.tensor(dtype, {pages, model.kv_heads, kOpPageSize, model.head_dim}),
          .page_size = kOpPageSize};
}

KvLayer random_kv(OpMemory& memory, const OpShapes& model, DType dtype, std::int64_t pages) {
  KvLayer kv = unwritten_kv(memory, model, dtype, pages);
  if (dtype == DType::kF8E4M3) {
    append_random_rows(memory, model, kv);
  } else {
    memory.randomize(kv.keys);
    memory.randomize(kv.values);
  }
  return kv;
}

// Every page once, in random order: entries of a batch's page tables, one after another.
std::vector<std::int32_t> shuffled_pages(std::int64_t pages) {
  std::vector<std::int32_t> table = counting_from(0, pages);
  for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[random_bits(5, i) % i]);
  return table;
}

// Where the pages of one sequence begin: a windowed set has given back those that no row sees any more.
std::int64_t oldest_position(const OpCase& c) {
  const int first_seen = c.window > 0 ? std::max(0, c.context - c.rows / c.sequences - c.window + 1) : 0;
  return first_seen / kOpPageSize * kOpPageSize;
}

ops::AttentionPlan plan_of(const OpCase& c, OpMemory& memory, const Tensor& page_table) {
  const int rows_each = c.rows / c.sequences;
  std::vector<std::int32_t> offsets;
  for (int s = 0; s <= c.sequences; ++s) offsets.push_back(s * rows_each);
  const auto sequences = static_cast<std::size_t>(c.sequences);
  const auto first_page = static_cast<std::int32_t>(oldest_position(c) / kOpPageSize);
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
      .first_pages = memory.integers(std::vector<std::int32_t>(sequences, first_page), {c.sequences}),
      .work = {.shape = {.rows_max = c.rows, .sequences_max = c.sequences, .kv_heads = c.model.kv_heads}}};
  plan.work.memory = memory.bytes(ops::attention_work_bytes(memory.stream(), plan.work.shape), 0);
  return plan;
}

struct RopeInputs {
  Tensor qkv, slots, q;
};

struct AttentionInputs {
  ops::AttentionPlan plan;
  Tensor q, out;
};

struct CopyInputs {
  KvLayer from, to;
  Tensor pairs;
};

}  // namespace

PreparedOp prepare_rope_append(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const DType activations = memory->activations();
  const std::int64_t pages = pages_of(c.rows);
  KvLayer kv = unwritten_kv(*memory, model, c.kv, copies * pages);
  const ops::Rope rope = random_rope(*memory, model);
  const Tensor positions = memory->integers(counting_from(0, c.rows), {c.rows});
  std::vector<RopeInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.qkv = memory->random(activations, {c.rows, qkv_width(model)}),
                      .slots = memory->integers(counting_from(i * pages * kOpPageSize, c.rows), {c.rows}),
                      .q = memory->tensor(activations, {c.rows, model.heads, model.head_dim})});
  }
  const std::vector<Tensor> outputs = {inputs[0].q};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [positions, rope, kv](const Stream& s, const RopeInputs& in) mutable {
                    ops::rope_append(s, in.qkv, positions, in.slots, rope, kv, in.q);
                  });
}

// Lists for the attention's kernels, in a form of their own: nothing to look at here; attention's outputs tell.
PreparedOp prepare_attention_plan(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const std::int64_t pages_each = pages_of(c.context - oldest_position(c));
  const Tensor table = memory->integers(shuffled_pages(c.sequences * pages_each), {c.sequences, pages_each});
  std::vector<ops::AttentionPlan> plans;
  for (int i = 0; i < copies; ++i) plans.push_back(plan_of(c, *memory, table));
  return prepared(std::move(memory), std::move(plans), {},
                  [](const Stream& s, const ops::AttentionPlan& plan) { ops::plan_attention(s, plan, kOpPageSize); });
}

PreparedOp prepare_attention(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  const OpShapes& model = c.model;
  const std::int64_t pages_each = pages_of(c.context - oldest_position(c));
  const std::int64_t tables = std::int64_t{copies} * c.sequences, pages = tables * pages_each;
  const KvLayer kv = random_kv(*memory, model, c.kv, pages);
  const Tensor table = memory->integers(shuffled_pages(pages), {tables, pages_each});
  const Tensor sinks = memory->random(DType::kBf16, {model.heads});
  // As a model has it: the query carries the scale.
  const float query_size = 1 / (std::sqrt(static_cast<float>(model.head_dim)) * ops::kScaleInQuery);
  std::vector<AttentionInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    const std::int64_t first = std::int64_t{i} * c.sequences;
    inputs.push_back({.plan = plan_of(c, *memory, table.rows(first, first + c.sequences)),
                      .q = memory->random(memory->activations(), {c.rows, model.heads, model.head_dim}, query_size),
                      .out = memory->tensor(memory->activations(), {c.rows, model.heads * model.head_dim})});
    ops::plan_attention(memory->stream(), inputs.back().plan, kOpPageSize);
  }
  const std::vector<Tensor> outputs = {inputs[0].out};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [kv, sinks](const Stream& s, const AttentionInputs& in) {
                    ops::attention(s, in.q, kv, in.plan, sinks, ops::kScaleInQuery, in.out);
                  });
}

// Each page to another place of another layer.
PreparedOp prepare_copy_pages(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies) {
  std::vector<std::int32_t> numbers;
  for (const std::int32_t page : shuffled_pages(c.pages)) {
    numbers.push_back(static_cast<std::int32_t>(numbers.size() / 2));
    numbers.push_back(page);
  }
  const Tensor pairs = memory->integers(numbers, {c.pages, 2});
  std::vector<CopyInputs> inputs;
  for (int i = 0; i < copies; ++i) {
    inputs.push_back({.from = random_kv(*memory, c.model, c.kv, c.pages),
                      .to = unwritten_kv(*memory, c.model, c.kv, c.pages),
                      .pairs = pairs});
  }
  const std::vector<Tensor> outputs = {inputs[0].to.keys, inputs[0].to.values};
  return prepared(std::move(memory), std::move(inputs), outputs,
                  [](const Stream& s, CopyInputs& in) { ops::copy_pages(s, in.from, in.to, in.pairs); });
}

}  // namespace rose
