// The prefill and decode kernels against the reference: same inputs, bf16. The kernel rounds probabilities to bf16
// (relative 2^-9 each) and the result to bf16 (2^-9), and takes a quarter of the exponentials from a cubic (8.8e-5):
// with values of size at most V the error is at most V * (2^-9 + 8.8e-5 + f32 terms) + |out| * 2^-9, which is under V *
// 2^-7.5 with all terms added.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/attention/attention.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_params.cuh"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::int_tensor;
using testing::OwnedTensor;
using testing::random_tensor;

struct SequenceShape {
  int context;  // positions after the step
  int rows;     // new ones
};

struct Case {
  const char* name;
  std::vector<SequenceShape> sequences;
  int window;
  int kv_heads;
  int page_size;
};

// A random paged problem: pages are dealt in a shuffled order, pages out of a window's reach are recycled
// (first_pages).
struct Problem {
  explicit Problem(const Case& c) {
    int rows = 0, pages = 0, pages_longest = 0;
    std::vector<std::int32_t> offsets{0}, contexts, firsts;
    for (const SequenceShape& s : c.sequences) {
      rows += s.rows;
      offsets.push_back(rows);
      contexts.push_back(s.context);
      const int oldest = c.window > 0 ? std::max(0, s.context - s.rows - c.window + 1) : 0;
      firsts.push_back(oldest / c.page_size);
      const int held = (s.context + c.page_size - 1) / c.page_size - firsts.back();
      pages += held;
      pages_longest = std::max(pages_longest, held);
    }
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(7, i) % i]);
    std::vector<std::int32_t> table(c.sequences.size() * static_cast<std::size_t>(pages_longest), 0);
    for (std::size_t s = 0, next = 0; s < c.sequences.size(); ++s) {
      const int held = (c.sequences[s].context + c.page_size - 1) / c.page_size - firsts[s];
      for (int p = 0; p < held; ++p)
        table[s * static_cast<std::size_t>(pages_longest) + static_cast<std::size_t>(p)] = order[next++];
      longest = std::max(longest, c.sequences[s].rows);
    }
    const int heads = 8 * c.kv_heads;
    q = random_tensor(DType::kBf16, {rows, heads, 64}, 1, 2.f);
    keys = random_tensor(DType::kBf16, {pages, c.kv_heads, c.page_size, 64}, 2, 2.f);
    values = random_tensor(DType::kBf16, {pages, c.kv_heads, c.page_size, 64}, 3, 1.f);
    sinks = random_tensor(DType::kBf16, {heads}, 4, 3.f);
    sinks->as<Bf16>()[0] = to_bf16(40.f);  // a sink that takes nearly everything, and one that takes nothing
    sinks->as<Bf16>()[1] = to_bf16(-1000.f);
    row_offsets = int_tensor(offsets);
    context_lengths = int_tensor(contexts);
    first_pages = int_tensor(firsts);
    page_table = int_tensor(table);
    plan = {.window = c.window,
            .sequences = static_cast<int>(c.sequences.size()),
            .rows = rows,
            .rows_longest = longest,
            .row_offsets = *row_offsets,
            .context_lengths = *context_lengths,
            .page_table = page_table->reshape({static_cast<std::int64_t>(c.sequences.size()), pages_longest}),
            .first_pages = *first_pages};
    kv = {.keys = *keys, .values = *values, .page_size = c.page_size};
  }

  OwnedTensor q, keys, values, sinks, row_offsets, context_lengths, first_pages, page_table;
  int longest = 0;
  AttentionPlan plan;
  KvLayer kv;
};

class CudaAttention : public ::testing::TestWithParam<Case> {};

TEST_P(CudaAttention, EqualsTheReference) {
  Problem problem(GetParam());
  OwnedTensor expected(DType::kF32, {problem.plan.rows, problem.q->size(1) * 64});
  ref::attention(Stream::cpu(8), *problem.q, problem.kv, problem.plan, *problem.sinks, 0.125f, *expected);

  Gpu gpu;
  AttentionPlan plan = problem.plan;
  plan.row_offsets = gpu.upload(plan.row_offsets);
  plan.context_lengths = gpu.upload(plan.context_lengths);
  plan.page_table = gpu.upload(plan.page_table);
  plan.first_pages = gpu.upload(plan.first_pages);
  const KvLayer kv{
      .keys = gpu.upload(*problem.keys), .values = gpu.upload(*problem.values), .page_size = problem.kv.page_size};
  cuda::AttentionWork work{
      .shape = {.rows_max = plan.rows + 10, .sequences_max = plan.sequences + 3, .kv_heads = GetParam().kv_heads}};
  OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::attention_work_bytes(gpu.stream, work.shape))}, 0);
  work.memory = gpu.upload(*memory).raw();
  cuda::plan_attention(gpu.stream, plan, work, kv.page_size);
  const Tensor q = gpu.upload(*problem.q), sinks = gpu.upload(*problem.sinks);
  for (const bool polynomial : {false, true}) {
    OwnedTensor actual(DType::kBf16, {problem.plan.rows, problem.q->size(1) * 64});
    const Tensor out = gpu.like(*actual);
    cuda::attention(gpu.stream, {.q = q,
                                 .kv = kv,
                                 .plan = plan,
                                 .work = work,
                                 .sinks = sinks,
                                 .scale = 0.125f,
                                 .out = out,
                                 .polynomial = polynomial});
    gpu.download(out, *actual);
    double worst = 0;
    std::int64_t where = 0;
    for (std::int64_t i = 0; i < actual->elements(); ++i) {
      const double error = std::fabs(testing::element(*actual, i) - testing::element(*expected, i));
      if (!(error <= worst)) worst = error, where = i;
    }
    EXPECT_LT(worst, std::exp2(-7.5)) << GetParam().name << ": row " << where / (problem.q->size(1) * 64)
                                      << ", element " << where % (problem.q->size(1) * 64) << ": "
                                      << testing::element(*actual, where) << " for "
                                      << testing::element(*expected, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttention,
    ::testing::Values(Case{"one_token", {{1, 1}}, 0, 1, 32}, Case{"one_tile", {{24, 24}}, 0, 1, 32},
                      Case{"page_edge", {{33, 33}}, 0, 2, 32}, Case{"tile_edge", {{128, 128}}, 0, 1, 32},
                      Case{"past_the_tile", {{129, 129}}, 0, 2, 64}, Case{"long", {{700, 700}}, 0, 2, 32},
                      Case{"chunk", {{1000, 100}}, 0, 2, 32}, Case{"window_127", {{127, 127}}, 128, 1, 32},
                      Case{"window_128", {{128, 128}}, 128, 1, 32}, Case{"window_129", {{129, 129}}, 128, 1, 32},
                      Case{"window_long", {{700, 700}}, 128, 2, 32}, Case{"window_chunk", {{1000, 90}}, 128, 2, 32},
                      Case{"several", {{300, 300}, {1, 1}, {50, 3}, {513, 200}}, 0, 2, 32},
                      Case{"several_windowed", {{300, 300}, {1, 1}, {450, 3}, {513, 200}}, 128, 2, 32},
                      Case{"all_heads", {{200, 200}}, 0, 8, 32}, Case{"decode_one", {{77, 1}}, 0, 8, 32},
                      Case{"decode_long", {{9001, 1}}, 0, 8, 32},
                      Case{"decode_many", {{64, 1}, {65, 1}, {1, 1}, {3000, 1}, {128, 1}, {500, 2}}, 0, 2, 32},
                      Case{"decode_windowed", {{64, 1}, {127, 1}, {128, 1}, {129, 1}, {3000, 1}, {500, 8}}, 128, 8, 64},
                      Case{"mixed", {{3000, 1}, {600, 100}, {900, 1}, {70, 70}}, 0, 2, 32}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rose::ops
