// The prefill and decode kernels against the reference: same inputs, bf16, keys and values bf16 or e4m3.
//
// Bound: values of size at most V = 1 are weighed by probabilities rounded to bf16 (relative error at most u = 2^-8)
// and the result o is rounded to bf16 (u |o|). Prefill divides by the sum of the rounded ones, so the first error is at
// most u * sum of w |v - o| <= u * sqrt(V^2 - o^2), and both together u * sqrt(2) * V = 2^-7.5. Decode sums before it
// rounds, whose worst case, all roundings in one direction, is 2^-7; it is held to the same. The f32 terms are a
// thousandth of that. e4m3 is widened exactly.
//
// Whatever no row may see (pages without a sequence, what lies past a context's end, table entries without a page,
// sequences and rows of padding) is NaN, or a number that must not be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

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
  std::string name;
  std::vector<SequenceShape> sequences;
  int window;
  int kv_heads;
  int page_size;
  float key_growth = 1;  // keys grow by this factor from the newest to the oldest: maxima move
  DType kv = DType::kBf16;
};

// A random paged problem: pages are dealt in a shuffled order, pages out of a window's reach are recycled
// (first_pages).
struct Problem {
  explicit Problem(const Case& c, int padding_rows = 0, int padding_sequences = 0) {
    int rows = 0, pages = 3, pages_longest = 0;
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
      longest = std::max(longest, s.rows);
    }
    rows_used = rows;
    rows += padding_rows;
    for (int i = 0; i < padding_sequences; ++i) {
      offsets.push_back(offsets.back());
      contexts.push_back(i * 7);  // of a sequence that left
      firsts.push_back(0);
    }
    const auto count = static_cast<std::int64_t>(contexts.size()), width = std::int64_t{pages_longest} + 5;
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(7, i) % i]);
    page_table = OwnedTensor(DType::kI32, {count, width});
    std::fill_n(page_table->as<std::int32_t>(), count * width, 0x7f000000);
    // Poison is NaN: 0xff in both formats, 0x7f in e4m3.
    keys = OwnedTensor(c.kv, {pages, c.kv_heads, c.page_size, 64}, c.kv == DType::kF8E4M3 ? 0x7f : 0xff);
    values = OwnedTensor(c.kv, {pages, c.kv_heads, c.page_size, 64});
    kv = {.keys = *keys, .values = *values, .page_size = c.page_size};
    const OwnedTensor key_row = random_tensor(DType::kBf16, {4096 * 64 + 61}, 2, 2.f);
    const OwnedTensor value_row = random_tensor(DType::kBf16, {4096 * 64 + 61}, 3, 1.f);
    std::int64_t drawn = 0;
    for (std::size_t s = 0, next = 0; s < c.sequences.size(); ++s) {
      const int context = c.sequences[s].context;
      for (int p = firsts[s] * c.page_size; p < context; ++p) {
        auto& entry = page_table->row<std::int32_t>(static_cast<std::int64_t>(s))[p / c.page_size - firsts[s]];
        if (p % c.page_size == 0) entry = order[next++];
        const float growth =
            c.key_growth == 1 ? 1 : std::pow(c.key_growth, 1 - static_cast<float>(p) / static_cast<float>(context));
        for (int head = 0; head < c.kv_heads; ++head) {
          const std::int64_t to = kv.element(std::int64_t{entry} * c.page_size + p % c.page_size, head);
          for (int d = 0; d < 64; ++d, drawn = (drawn + 1) % key_row->elements()) {
            testing::set_element(*keys, to + d, to_float(key_row->as<Bf16>()[drawn]) * growth);
            testing::set_element(*values, to + d, to_float(value_row->as<Bf16>()[drawn]));
          }
        }
      }
    }
    const int heads = 8 * c.kv_heads;
    q = random_tensor(DType::kBf16, {rows, heads, 64}, 1, 2.f);
    for (std::int64_t i = std::int64_t{rows_used} * heads * 64; i < q->elements(); ++i)
      q->as<Bf16>()[i] = to_bf16(std::numeric_limits<float>::quiet_NaN());
    sinks = random_tensor(DType::kBf16, {heads}, 4, 3.f);
    sinks->as<Bf16>()[0] = to_bf16(40.f);  // a sink that takes nearly everything, and one that takes nothing
    sinks->as<Bf16>()[1] = to_bf16(-1000.f);
    row_offsets = int_tensor(offsets);
    context_lengths = int_tensor(contexts);
    first_pages = int_tensor(firsts);
    plan.window = c.window;
    plan.sequences = static_cast<int>(count);
    plan.rows = rows;
    plan.rows_longest = longest;
    plan.reads_own_rows = false;  // the harder case: what lies before the new rows is read ahead
    plan.row_offsets = *row_offsets;
    plan.context_lengths = *context_lengths;
    plan.page_table = *page_table;
    plan.first_pages = *first_pages;
  }

  // Of the rows that are used, in f32.
  OwnedTensor run_reference(float scale = 0.125f) const {
    OwnedTensor out(DType::kF32, {rows_used, q->size(1) * 64});
    AttentionPlan used = plan;
    used.rows = rows_used;
    ref::attention(Stream::cpu(16), q->rows(0, rows_used), kv, used, *sinks, scale, *out);
    return out;
  }

  OwnedTensor q, keys, values, sinks, row_offsets, context_lengths, first_pages, page_table;
  int longest = 0, rows_used = 0;
  AttentionPlan plan;
  KvLayer kv;
};

// A problem's tensors on the device.
struct OnDevice {
  OnDevice(const Problem& problem, int kv_heads)
      : plan(problem.plan),
        kv{gpu.upload(*problem.keys), gpu.upload(*problem.values), problem.kv.page_size},
        q(gpu.upload(*problem.q)),
        sinks(gpu.upload(*problem.sinks)),
        result(DType::kBf16, {problem.plan.rows, problem.q->size(1) * 64}),
        out(gpu.like(*result)) {
    plan.row_offsets = gpu.upload(plan.row_offsets);
    plan.context_lengths = gpu.upload(plan.context_lengths);
    plan.page_table = gpu.upload(plan.page_table);
    plan.first_pages = gpu.upload(plan.first_pages);
    plan.work.shape = {.rows_max = plan.rows + 10, .sequences_max = plan.sequences + 3, .kv_heads = kv_heads};
    const OwnedTensor memory(DType::kU8,
                             {static_cast<std::int64_t>(cuda::attention_work_bytes(gpu.stream, plan.work.shape))}, 0);
    plan.work.memory = gpu.upload(*memory).raw();
  }
  void enqueue(float scale = 0.125f) {
    cuda::plan_attention(gpu.stream, plan, plan.work, kv.page_size);
    for (int layer = 0; layer < 2; ++layer) {  // the second finds what the first left in the work memory
      cuda::attention(gpu.stream,
                      {.q = q, .kv = kv, .plan = plan, .work = plan.work, .sinks = sinks, .scale = scale, .out = out});
    }
  }
  const Tensor& download() {
    gpu.download(out, *result);
    return *result;
  }

  Gpu gpu;
  AttentionPlan plan;
  KvLayer kv;
  Tensor q, sinks;
  OwnedTensor result;
  Tensor out;
};

void expect_near(const Tensor& actual, const Tensor& expected) {
  double worst = 0;
  std::int64_t where = 0;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double error = std::fabs(testing::element(actual, i) - testing::element(expected, i));
    if (!(error <= worst)) worst = error, where = i;
    if (std::isnan(error)) break;
  }
  EXPECT_LT(worst, std::exp2(-7.5)) << "row " << where / expected.size(1) << ", element " << where % expected.size(1)
                                    << ": " << testing::element(actual, where) << " for "
                                    << testing::element(expected, where);
}

class CudaAttention : public ::testing::TestWithParam<Case> {};

// In both orders of work: the one of long contexts, and the one of short ones.
TEST_P(CudaAttention, EqualsTheReference) {
  Problem problem(GetParam());
  const OwnedTensor expected = problem.run_reference();
  for (const int context_longest : {1, 1 << 17}) {
    problem.plan.context_longest = context_longest;
    OnDevice device(problem, GetParam().kv_heads);
    device.enqueue();
    expect_near(device.download(), *expected);
  }
}

std::vector<Case> in_both_formats(std::vector<Case> cases) {
  for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
    Case e4m3 = cases[i];
    e4m3.name += "_e4m3";
    e4m3.kv = DType::kF8E4M3;
    cases.push_back(e4m3);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttention,
    ::testing::ValuesIn(in_both_formats(
        {Case{"one_token", {{1, 1}}, 0, 1, 32},
         Case{"one_tile", {{24, 24}}, 0, 1, 32},
         Case{"page_edge", {{33, 33}}, 0, 2, 32},
         Case{"tile_edge", {{128, 128}}, 0, 1, 32},
         Case{"past_the_tile", {{129, 129}}, 0, 2, 64},
         Case{"long", {{700, 700}}, 0, 2, 32},
         Case{"chunk", {{1000, 100}}, 0, 2, 32},
         Case{"window_127", {{127, 127}}, 128, 1, 32},
         Case{"window_128", {{128, 128}}, 128, 1, 32},
         Case{"window_129", {{129, 129}}, 128, 1, 32},
         Case{"window_long", {{700, 700}}, 128, 2, 32},
         Case{"window_chunk", {{1000, 90}}, 128, 2, 32},
         Case{"several", {{300, 300}, {1, 1}, {50, 3}, {513, 200}}, 0, 2, 32},
         Case{"several_windowed", {{300, 300}, {1, 1}, {450, 3}, {513, 200}}, 128, 2, 32},
         Case{"all_heads", {{200, 200}}, 0, 8, 32},
         Case{"decode_one", {{77, 1}}, 0, 8, 32},
         Case{"decode_long", {{9001, 1}}, 0, 8, 32},
         Case{"decode_many", {{64, 1}, {65, 1}, {1, 1}, {3000, 1}, {128, 1}, {500, 2}}, 0, 2, 32},
         Case{"decode_windowed", {{64, 1}, {127, 1}, {128, 1}, {129, 1}, {3000, 1}, {500, 8}}, 128, 8, 64},
         Case{"mixed", {{3000, 1}, {600, 100}, {900, 1}, {70, 70}}, 0, 2, 32},
         Case{"mixed_windowed", {{3000, 1}, {600, 100}, {900, 1}, {70, 70}}, 128, 2, 32},
         Case{"pages_of_16", {{333, 90}, {100, 1}, {1000, 2}}, 0, 2, 16},
         Case{"pages_of_64_windowed", {{700, 333}, {100, 1}, {1000, 2}}, 128, 2, 64},
         Case{"pages_of_128", {{700, 333}, {100, 1}, {1000, 2}}, 0, 1, 128},
         Case{"long_window", {{1200, 200}, {1200, 1}}, 500, 1, 32},
         Case{"window_of_one", {{90, 50}, {70, 1}}, 1, 1, 32},
         Case{"many_tiles", {{1100, 1100}, {600, 300}}, 0, 8, 32},
         Case{"maxima_grow", {{900, 300}}, 0, 2, 32, 4},
         Case{"maxima_outgrow_the_first_unit", {{900, 300}, {2000, 50}}, 0, 2, 32, 200},
         Case{"maxima_outgrow_in_decode", {{900, 1}, {9000, 1}}, 0, 2, 32, 200}})),
    [](const auto& info) { return info.param.name; });

class CudaAttentionScaleInQuery : public ::testing::TestWithParam<Case> {};

// Scores of up to a few tens, and of hundreds, which are outside f32's range as powers of two.
TEST_P(CudaAttentionScaleInQuery, EqualsTheReference) {
  const Problem problem(GetParam());
  OnDevice device(problem, GetParam().kv_heads);
  device.enqueue(kScaleInQuery);
  expect_near(device.download(), *problem.run_reference(kScaleInQuery));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttentionScaleInQuery,
    ::testing::ValuesIn(in_both_formats({Case{"one_tile", {{24, 24}}, 0, 1, 32}, Case{"long", {{700, 700}}, 0, 2, 32},
                                         Case{"small_scores", {{700, 300}}, 0, 2, 32, 0.01f},
                                         Case{"window_long", {{700, 700}}, 128, 2, 32},
                                         Case{"mixed", {{3000, 1}, {600, 100}, {70, 70}}, 0, 2, 32},
                                         Case{"outside_the_range", {{900, 300}}, 0, 2, 32, 40},
                                         Case{"outside_with_a_window", {{900, 300}}, 128, 2, 32, 40}})),
    [](const auto& info) { return info.param.name; });

class CudaAttentionCaches : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, CudaAttentionCaches, ::testing::Values(DType::kBf16, DType::kF8E4M3),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Every code comes out as its value, from both kernels: every row sees itself alone, sinks have no weight. Four KV
// heads of 64 hold all codes; f16, bf16 and the result hold each exactly. NaN comes out as NaN.
TEST(CudaAttentionE4m3, EveryCodeIsReadAsItsValue) {
  for (const int rows : {1, 24}) {  // decode, prefill
    Problem problem(Case{"", {{rows, rows}}, 1, 4, 32, 1, DType::kF8E4M3});
    for (int head = 0; head < 32; ++head) problem.sinks->as<Bf16>()[head] = to_bf16(-1000.f);
    const std::int64_t slot = std::int64_t{problem.page_table->as<std::int32_t>()[0]} * 32;
    for (int position = 0; position < rows; ++position) {
      for (int code = 0; code < 256; ++code) {
        const std::int64_t to = problem.kv.element(slot + position, code / 64) + code % 64;
        problem.values->as<F8E4M3>()[to] = {static_cast<std::uint8_t>(code)};
      }
    }
    OnDevice device(problem, 4);
    device.enqueue();
    const Tensor& result = device.download();
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < 32 * 64; ++i) {
        const int code = i / 512 * 64 + i % 64;
        const double want = to_float(F8E4M3{static_cast<std::uint8_t>(code)});
        const double got = testing::element(result, std::int64_t{row} * 2048 + i);
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << row << ", code " << code << ": " << got;
      }
    }
  }
}

// A decoding step as a graph is captured for it: rows and sequences of padding.
TEST_P(CudaAttentionCaches, PaddingIsNotReadAndNotWritten) {
  for (const int window : {0, 128}) {
    const Case c{"", {{700, 1}, {64, 1}, {1, 1}, {4000, 1}, {130, 1}}, window, 8, 32, 1, GetParam()};
    const Problem problem(c, 3, 3);
    OnDevice device(problem, c.kv_heads);
    device.enqueue();
    const Tensor& result = device.download();
    expect_near(result.rows(0, problem.rows_used), *problem.run_reference());
    for (std::int64_t i = std::int64_t{problem.rows_used} * result.size(1); i < result.elements(); ++i)
      ASSERT_TRUE(std::isnan(testing::element(result, i))) << i;
  }
}

// A captured step is replayed after its plan's numbers have changed.
TEST_P(CudaAttentionCaches, AGraphStaysValidWhenLengthsChange) {
  for (const int window : {0, 128}) {
    const Case captured{"", {{2900, 1}, {64, 1}, {1, 1}, {77, 1}}, window, 2, 32, 1, GetParam()};
    const Case later{"", {{33, 1}, {2900, 1}, {3, 1}, {96, 1}}, window, 2, 32, 1, GetParam()};
    const Problem first(captured), second(later);
    OnDevice device(first, 2);
    rose::cuda::begin_capture(device.gpu.stream.native());
    device.enqueue();
    const auto graph = rose::cuda::end_capture(device.gpu.stream.native());
    rose::cuda::launch_graph(graph.get(), device.gpu.stream.native());
    expect_near(device.download(), *first.run_reference());
    const auto replace = [&](const Tensor& to, const Tensor& from) {
      ASSERT_EQ(to.bytes(), from.bytes());
      copy_async(device.gpu.stream, to.raw(), from.raw(), from.bytes());
    };
    replace(device.plan.context_lengths, *second.context_lengths);
    replace(device.plan.page_table, *second.page_table);
    replace(device.plan.first_pages, *second.first_pages);
    replace(device.kv.keys, *second.keys);
    replace(device.kv.values, *second.values);
    rose::cuda::launch_graph(graph.get(), device.gpu.stream.native());
    expect_near(device.download(), *second.run_reference());
  }
}

// What does not depend on timing: the same bits again and again, with long contexts shared by many blocks.
TEST_P(CudaAttentionCaches, BitsAreTheSameEveryTime) {
  const Case c{"", {{9000, 1}, {700, 1}, {300, 100}}, 0, 8, 32, 1, GetParam()};
  const Problem problem(c);
  OnDevice device(problem, c.kv_heads);
  device.enqueue();
  const OwnedTensor before = random_tensor(DType::kBf16, {problem.plan.rows, 4096}, 9);
  std::memcpy(before->raw(), device.download().raw(), before->bytes());
  for (int i = 0; i < 20; ++i) {
    device.enqueue();
    ASSERT_EQ(std::memcmp(before->raw(), device.download().raw(), before->bytes()), 0) << i;
  }
}

}  // namespace
}  // namespace rose::ops
