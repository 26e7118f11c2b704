#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

struct Sequence {
  int context = 1;  // positions after the step
  int rows = 1;     // of them new
};

struct Shape {
  int heads = 8, kv_heads = 1, head_dim = 64, page_size = 16, window = 0;
  DType kv = DType::kBf16;
};

// A paged cache with scattered pages; pages and positions that no row may see hold NaNs.
struct Scene {
  Shape shape;
  std::vector<Sequence> sequences;
  OwnedTensor keys, values, sinks, q, offsets, contexts, table, firsts;
  KvLayer kv;
  AttentionPlan plan;

  Scene(const Shape& s, std::vector<Sequence> all, std::uint64_t seed) : shape(s), sequences(std::move(all)) {
    std::vector<std::int32_t> row_offsets = {0}, context_lengths, first_pages;
    int pages_max = 1;
    int pages_all = 3;
    for (const Sequence& sequence : sequences) {
      row_offsets.push_back(row_offsets.back() + sequence.rows);
      context_lengths.push_back(sequence.context);
      first_pages.push_back(first_visible(sequence) / s.page_size);
      pages_max = std::max(pages_max, pages_of(sequence));
      pages_all += pages_of(sequence);
    }
    keys = OwnedTensor(s.kv, {pages_all, s.kv_heads, s.page_size, s.head_dim});
    values = OwnedTensor(s.kv, {pages_all, s.kv_heads, s.page_size, s.head_dim});
    const auto count = static_cast<std::int64_t>(sequences.size());
    table = OwnedTensor(DType::kI32, {count, pages_max + 1});  // unused entries stay -1
    int next = pages_all - 1;  // pages run backwards: physical order is not logical order
    for (std::int64_t i = 0; i < count; ++i) {
      for (int p = 0; p < pages_of(sequences[static_cast<std::size_t>(i)]); ++p) {
        table->row<std::int32_t>(i)[p] = next--;
      }
    }
    offsets = testing::int_tensor(row_offsets);
    contexts = testing::int_tensor(context_lengths);
    firsts = testing::int_tensor(first_pages);
    sinks = testing::random_tensor(DType::kBf16, {s.heads}, seed, 2);
    q = testing::random_tensor(DType::kF32, {row_offsets.back(), s.heads, s.head_dim}, seed + 1, 2);
    kv = {*keys, *values, s.page_size};
    plan = {.window = s.window,
            .sequences = static_cast<int>(count),
            .rows = row_offsets.back(),
            .row_offsets = *offsets,
            .context_lengths = *contexts,
            .page_table = *table,
            .first_pages = *firsts};
    for (std::size_t i = 0; i < sequences.size(); ++i) fill(i, seed + 2 + 2 * i);
  }

  int first_visible(const Sequence& sequence) const {
    return shape.window > 0 ? std::max(0, sequence.context - sequence.rows - shape.window + 1) : 0;
  }
  int pages_of(const Sequence& sequence) const {
    return (sequence.context - 1) / shape.page_size - first_visible(sequence) / shape.page_size + 1;
  }
  std::int64_t element(std::size_t s, int position, int kv_head = 0) const {
    const int entry = position / shape.page_size - firsts->as<std::int32_t>()[s];
    const std::int64_t page = table->row<std::int32_t>(static_cast<std::int64_t>(s))[entry];
    return ((page * shape.kv_heads + kv_head) * shape.page_size + position % shape.page_size) * shape.head_dim;
  }
  // Contents depend on (seed, position) alone, so that scenes with other chunks or windows hold the same.
  void fill(std::size_t s, std::uint64_t seed) {
    const int width = shape.kv_heads * shape.head_dim;
    for (int position = first_visible(sequences[s]); position < sequences[s].context; ++position) {
      for (int i = 0; i < width; ++i) {
        const auto index = static_cast<std::uint64_t>(position * width + i);
        const std::int64_t at = element(s, position, i / shape.head_dim) + i % shape.head_dim;
        testing::set_element(*keys, at, testing::random_value(seed, index, 1));
        testing::set_element(*values, at, testing::random_value(seed + 1, index, 1));
      }
    }
  }
  OwnedTensor run(int threads) const {
    OwnedTensor out(DType::kF32, {plan.rows, shape.heads * shape.head_dim});
    attention(Stream::cpu(threads), *q, kv, plan, *sinks, 0.125f, *out);
    return out;
  }
  OwnedTensor run_reference() const {
    OwnedTensor out(DType::kF32, {plan.rows, shape.heads * shape.head_dim});
    ref::attention(Stream::cpu(1), *q, kv, plan, *sinks, 0.125f, *out);
    return out;
  }
};

// Outputs are averages of values in [-1, 1] (weights sum to less than 1). A score errs by head_dim eps sum |q k| scale
// <= 64 eps * 64 * 2 * 0.125, which is the relative error of its weight; twice that for numerator and denominator, plus
// the sum over n keys.
double score_bound(const Shape& shape, int keys) {
  const double eps = std::ldexp(1.0, -24);
  const double score = shape.head_dim * eps * shape.head_dim * 2 * 0.125;
  return 2 * (score + (keys + 20) * eps);
}

struct Case {
  std::string name;
  Shape shape;
  std::vector<Sequence> sequences;
};

std::vector<Case> cases() {
  const Shape full;
  const Shape sliding{.heads = 8, .kv_heads = 2, .page_size = 32, .window = 128};
  std::vector<Case> all = {
      {"one_key", full, {{1, 1}}},
      {"page_edges", full, {{15, 1}, {16, 1}, {17, 1}, {32, 3}, {33, 2}}},
      {"split_edges", full, {{511, 1}, {512, 1}, {513, 1}, {514, 4}}},
      {"whole_prompt", full, {{70, 70}}},
      {"page_of_one", {.heads = 4, .kv_heads = 2, .page_size = 1}, {{37, 5}}},
      {"f32_cache", {.heads = 4, .kv_heads = 4, .kv = DType::kF32}, {{90, 33}, {2, 1}}},
      {"e4m3_cache", {.heads = 8, .kv_heads = 2, .kv = DType::kF8E4M3}, {{90, 33}, {2, 1}, {700, 1}}},
      {"e4m3_window", {.heads = 8, .kv_heads = 2, .window = 128, .kv = DType::kF8E4M3}, {{128, 1}, {600, 70}}},
      {"e4m3_narrow_head", {.heads = 4, .kv_heads = 2, .head_dim = 20, .kv = DType::kF8E4M3}, {{50, 9}}},
      {"many_heads", {.heads = 64, .kv_heads = 8}, {{40, 2}, {100, 1}}},
      {"odd_group", {.heads = 6, .kv_heads = 2, .head_dim = 48}, {{50, 9}}},
      {"narrow_head_falls_back", {.heads = 4, .kv_heads = 2, .head_dim = 20}, {{50, 9}}},
      {"window_127_128_129", sliding, {{127, 1}, {128, 1}, {129, 1}}},
      {"window_chunk_across", sliding, {{140, 30}, {600, 5}, {515, 4}}},
      {"window_prompt", sliding, {{300, 300}}},
      {"window_of_one", {.heads = 2, .kv_heads = 1, .window = 1}, {{40, 4}}},
  };
  return all;
}

class Attention : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Attention, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

TEST_P(Attention, MatchesTheReferenceAndNeverReadsWhatIsInvisible) {
  const Scene scene(GetParam().shape, GetParam().sequences, 1);
  int keys = 0;
  for (const Sequence& sequence : scene.sequences) keys = std::max(keys, sequence.context);
  const OwnedTensor want = scene.run_reference();
  for (const int threads : {1, 2}) {
    EXPECT_EQ(testing::difference(*scene.run(threads), *want, testing::bound(score_bound(scene.shape, keys), 1e-6)),
              "");
  }
}

// The reference itself against sums written out in full for one query.
class AttentionReference : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Caches, AttentionReference, ::testing::Values(DType::kF32, DType::kBf16, DType::kF8E4M3),
                         [](const auto& c) { return std::string(dtype_name(c.param)); });

TEST_P(AttentionReference, WeightsAreSoftmaxWithTheSinkInTheDenominator) {
  Scene scene({.heads = 2, .kv_heads = 1, .head_dim = 16, .page_size = 4, .kv = GetParam()}, {{3, 1}}, 5);
  const OwnedTensor out = scene.run_reference();
  for (int head = 0; head < 2; ++head) {
    double weights[3];
    double total = std::exp(static_cast<double>(to_float(scene.sinks->as<Bf16>()[head])));
    for (int j = 0; j < 3; ++j) {
      double dot = 0;
      for (int d = 0; d < 16; ++d) {
        dot += testing::element(*scene.q, head * 16 + d) * testing::element(*scene.keys, scene.element(0, j) + d);
      }
      weights[j] = std::exp(dot / 8);
      total += weights[j];
    }
    for (int d = 0; d < 16; ++d) {
      double want = 0;
      for (int j = 0; j < 3; ++j) want += weights[j] / total * testing::element(*scene.values, scene.element(0, j) + d);
      EXPECT_NEAR(testing::element(*out, head * 16 + d), want, 1e-7);
    }
  }
}

// With all values 1 the output is the sum of the weights: 1 - sink's share.
TEST(AttentionSink, WeightsSumToOneMinusTheSink) {
  Scene scene({.heads = 4, .kv_heads = 1}, {{600, 1}}, 6);
  for (std::int64_t i = 0; i < scene.values->elements(); ++i) testing::set_element(*scene.values, i, 1);
  const float sinks[] = {-std::numeric_limits<float>::infinity(), -100, 6, 300};
  for (int h = 0; h < 4; ++h) scene.sinks->as<Bf16>()[h] = to_bf16(sinks[h]);
  const OwnedTensor out = scene.run(2);
  EXPECT_NEAR(testing::element(*out, 0), 1, 1e-5);
  EXPECT_NEAR(testing::element(*out, 64), 1, 1e-5);
  EXPECT_GT(testing::element(*out, 128), 0.1);
  EXPECT_LT(testing::element(*out, 128), 0.9);
  EXPECT_EQ(testing::element(*out, 192), 0);
}

// The sliding layer sees what a full layer sees when everything before the window scores nothing: here, 128 positions
// alone.
TEST(AttentionWindow, SeesExactly128PositionsSelfIncluded) {
  for (const int context : {127, 128, 129, 200}) {
    Scene scene({.heads = 2, .kv_heads = 1, .page_size = 16, .window = 128}, {{context, 1}}, 7);
    for (int h = 0; h < 2; ++h) scene.sinks->as<Bf16>()[h] = to_bf16(-300);
    for (std::int64_t i = 0; i < scene.q->elements(); ++i)
      scene.q->as<float>()[i] = 0;  // all visible keys weigh the same
    const int first = scene.first_visible(scene.sequences[0]);
    for (int p = first / 16 * 16; p < context; ++p) {
      for (int d = 0; d < 64; ++d)
        testing::set_element(*scene.values, scene.element(0, p) + d, p == std::max(0, context - 128) ? 1 : 0);
    }
    EXPECT_NEAR(testing::element(*scene.run(1), 0), 1.0 / std::min(context, 128), 1e-7) << context;
    // The position just before the window must not count.
    for (int p = first / 16 * 16; p < context; ++p) {
      for (int d = 0; d < 64; ++d)
        testing::set_element(*scene.values, scene.element(0, p) + d, p == context - 129 ? 1 : 0);
    }
    EXPECT_EQ(testing::element(*scene.run(1), 0), 0) << context;
  }
}

TEST(AttentionWindow, AWindowLongerThanTheContextIsNoWindow) {
  const std::vector<Sequence> sequences = {{100, 7}, {33, 33}};
  const Scene full({.heads = 4, .kv_heads = 1}, sequences, 8);
  const Scene windowed({.heads = 4, .kv_heads = 1, .window = 128}, sequences, 8);
  EXPECT_EQ(testing::bit_difference(*windowed.run(2), *full.run(2)), "");
}

class AttentionBits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Windows, AttentionBits, ::testing::Values(0, 128));

// A row that sees one position alone, and a sink without weight: the value comes out as it is. 4 KV heads of 64 hold
// every code, each value exact in f32.
TEST(Attention, EveryE4m3CodeIsReadAsItsValue) {
  const Scene scene({.heads = 4, .kv_heads = 4, .kv = DType::kF8E4M3}, {{1, 1}}, 13);
  for (int head = 0; head < 4; ++head) {
    scene.sinks->as<Bf16>()[head] = to_bf16(-1e4f);
    for (int d = 0; d < 64; ++d) {
      scene.values->as<F8E4M3>()[scene.element(0, 0, head) + d] = {static_cast<std::uint8_t>(head * 64 + d)};
    }
  }
  const OwnedTensor out = scene.run(1);
  for (int code = 0; code < 256; ++code) {
    const double want = to_float(F8E4M3{static_cast<std::uint8_t>(code)}), got = testing::element(*out, code);
    EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << code << ": " << got << " for " << want;
  }
  scene.keys->as<F8E4M3>()[scene.element(0, 0, 2) + 5] = {0xff};  // NaN in a key: its heads alone
  const OwnedTensor broken = scene.run(1);
  for (int head = 0; head < 4; ++head) EXPECT_EQ(std::isnan(testing::element(*broken, head * 64)), head == 2);
}

// One prompt at once, in chunks, and row by row as in decode: the same values.
TEST_P(AttentionBits, ARowIsTheSameInAPromptAChunkAndADecodeStep) {
  const Shape shape{.heads = 8, .kv_heads = 2, .page_size = 32, .window = GetParam()};
  const int context = 1100;
  const Scene prompt(shape, {{context, 300}}, 9);
  const OwnedTensor whole = prompt.run(2);
  for (const auto& [begin, rows] : {std::pair{0, 1}, {7, 13}, {150, 1}, {230, 70}, {299, 1}}) {
    Scene part(shape, {{context - 300 + begin + rows, rows}}, 9);
    const std::int64_t width = shape.heads * shape.head_dim;
    std::copy_n(prompt.q->as<float>() + begin * width, rows * width, part.q->as<float>());
    for (const int threads : {1, 2, 16}) {
      EXPECT_EQ(testing::bit_difference(*part.run(threads), whole->rows(begin, begin + rows)), "")
          << begin << " rows " << rows << " threads " << threads;
    }
  }
}

TEST(AttentionBits, SequencesDoNotInfluenceEachOther) {
  const Shape shape{.heads = 8, .kv_heads = 2};
  Scene scene(shape, {{40, 3}, {70, 1}, {64, 20}}, 10);
  const OwnedTensor before = scene.run(2);
  for (int d = 0; d < 64; ++d) {
    testing::set_element(*scene.keys, scene.element(1, 5) + d, std::numeric_limits<float>::quiet_NaN());
  }
  const OwnedTensor after = scene.run(2);
  EXPECT_EQ(testing::bit_difference(after->rows(0, 3), before->rows(0, 3)), "");
  EXPECT_EQ(testing::bit_difference(after->rows(4, 24), before->rows(4, 24)), "");
  EXPECT_TRUE(std::isnan(testing::element(*after, 3 * 8 * 64)));  // KV head 0 of the broken sequence
}

TEST(Attention, NoRowsIsNothingToDo) {
  const Scene scene({}, {}, 11);
  EXPECT_EQ(scene.run(2)->elements(), 0);
}

TEST(AttentionDeathTest, APageOutsideTheCacheIsCaught) {
  const Scene scene({}, {{20, 1}}, 12);
  scene.table->as<std::int32_t>()[0] = 1000;
  EXPECT_DEATH(scene.run(1), "page 1000");
}

}  // namespace
}  // namespace rose::ops
