// The kernel against the CPU operation and against the definition by a full sort in double.
//
// f32 weights: the difference z - top, its quotient by the temperature and the product with log2 e round once each, the
// power errs by at most two units; a plain row's weight is a product of two such powers, whose exponents add up to d.
// So exp(d) errs by (3 |d| + 8) * 2^-24 of itself, and is exact at d = 0. A draw that close to a step of the
// distribution may fall on either side, so the tokens within that distance are allowed (nearly always one). Rows where
// a filter's edge is that close are left out, and few may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "ops/sample/sample.h"
#include "ops/sample/sample_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kWhole = 201088;

struct Batch {
  OwnedTensor logits;
  std::vector<SampleRow> rows;
  std::vector<LogitAdjustment> adjustments;
  OwnedTensor masks;  // without memory: none
  std::int64_t slots = 4;

  std::int64_t vocabulary() const { return logits->size(1); }
};

struct Outcome {
  OwnedTensor tokens, logprobs, top_tokens, top_logprobs, last_tokens;

  explicit Outcome(const Batch& batch) {
    const auto rows = static_cast<std::int64_t>(batch.rows.size());
    tokens = OwnedTensor(DType::kI32, {rows});
    logprobs = OwnedTensor(DType::kF32, {rows});
    top_tokens = OwnedTensor(DType::kI32, {rows, kTopLogprobsMax});
    top_logprobs = OwnedTensor(DType::kF32, {rows, kTopLogprobsMax});
    last_tokens = OwnedTensor(DType::kI32, {batch.slots});
  }
  SampleOutputs all() const { return {*tokens, *logprobs, *top_tokens, *top_logprobs, *last_tokens}; }
  std::int32_t token(std::size_t r) const { return tokens->as<std::int32_t>()[r]; }
};

Outcome on_cpu(const Batch& batch) {
  Outcome outcome(batch);
  sample(Stream::cpu(4), {*batch.logits, batch.rows.data(), batch.adjustments.data(), *batch.masks}, outcome.all());
  return outcome;
}

template <class T>
const T* upload(Gpu& gpu, const std::vector<T>& values) {
  const OwnedTensor bytes(DType::kU8, {static_cast<std::int64_t>(values.size() * sizeof(T))});
  if (!values.empty()) std::memcpy(bytes->raw(), values.data(), values.size() * sizeof(T));
  return static_cast<const T*>(gpu.upload(*bytes).raw());
}

Outcome on_gpu(const Batch& batch) {
  Gpu gpu;
  Outcome outcome(batch);
  const SampleOutputs device{gpu.like(*outcome.tokens), gpu.like(*outcome.logprobs), gpu.like(*outcome.top_tokens),
                             gpu.like(*outcome.top_logprobs), gpu.like(*outcome.last_tokens)};
  cuda::sample(
      gpu.stream,
      {gpu.upload(*batch.logits), upload(gpu, batch.rows), upload(gpu, batch.adjustments), gpu.upload(*batch.masks)},
      device);
  gpu.download(device.tokens, *outcome.tokens);
  gpu.download(device.logprobs, *outcome.logprobs);
  gpu.download(device.top_tokens, *outcome.top_tokens);
  gpu.download(device.top_logprobs, *outcome.top_logprobs);
  gpu.download(device.last_tokens, *outcome.last_tokens);
  return outcome;
}

std::vector<float> adjusted(const Batch& batch, std::size_t r) {
  const SampleRow& row = batch.rows[r];
  const float* logits = batch.logits->row<float>(static_cast<std::int64_t>(r));
  std::vector<float> z(logits, logits + batch.vocabulary());
  for (std::int32_t a = row.adjustments_begin; a < row.adjustments_end; ++a) {
    const LogitAdjustment& adjustment = batch.adjustments[static_cast<std::size_t>(a)];
    float& value = z[static_cast<std::size_t>(adjustment.token)];
    value = (value > 0 ? value / adjustment.repetition : value * adjustment.repetition) + adjustment.add;
  }
  for (std::size_t t = 0; row.mask_row >= 0 && t < z.size(); ++t) {
    const auto word = static_cast<std::uint32_t>(batch.masks->row<std::int32_t>(row.mask_row)[t / 32]);
    if ((word >> (t % 32) & 1u) == 0) z[t] = -kInf;
  }
  return z;
}

// The definition. `sure`: no filter's edge lies within the rounding of f32 weights.
struct Definition {
  std::vector<std::int32_t> tokens;  // allowed
  bool sure = true;

  bool allows(std::int32_t token) const { return std::find(tokens.begin(), tokens.end(), token) != tokens.end(); }

  Definition(const std::vector<float>& z, const SampleRow& row) {
    std::vector<std::int32_t> order(z.size());
    std::iota(order.begin(), order.end(), 0);
    const auto of = [&](std::int32_t t) { return static_cast<double>(z[static_cast<std::size_t>(t)]); };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return of(a) > of(b); });
    tokens = {order[0]};
    if (of(order[0]) == -kInf) tokens = {-1};
    if (of(order[0]) == -kInf || row.temperature == 0) return;
    const double top = of(order[0]);
    std::vector<double> weights(z.size()), errors(z.size(), 0.0);  // in falling order
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double d = of(order[i]) == top ? 0 : (of(order[i]) - top) / static_cast<double>(row.temperature);
      weights[i] = std::exp(d);
      if (d != 0 && weights[i] > 0) errors[i] = weights[i] * (3 * std::fabs(d) + 8) * 0x1p-24 + 0x1p-44;
    }
    const std::size_t count = keep(weights, errors, row);
    std::vector<std::size_t> places(count);
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return order[a] < order[b]; });
    double sum = 0, error = 0;
    for (const std::size_t i : places) sum += weights[i], error += errors[i];
    const double target = static_cast<double>(random_unit(row.seed, row.counter)) * sum;
    double reached = 0;
    tokens.clear();
    for (const std::size_t i : places) {
      const bool begun = reached - 2 * error <= target;
      reached += weights[i];
      const bool ended = error > 0 ? reached + 2 * error < target : reached <= target;
      if (weights[i] > 0 && begun && !ended) tokens.push_back(order[i]);
    }
  }

 private:
  std::size_t keep(const std::vector<double>& weights, const std::vector<double>& errors, const SampleRow& row) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double error = std::accumulate(errors.begin(), errors.end(), 0.0);
    const double target = static_cast<double>(row.top_p) * total, least = static_cast<double>(row.min_p);
    double reached = 0;
    std::size_t count = 0;
    for (; count < weights.size(); ++count) {
      if (row.top_k > 0 && count == static_cast<std::size_t>(row.top_k)) break;
      if (row.top_p < 1 && count > 0) {
        if (std::fabs(reached - target) < 2 * error) sure = false;
        if (reached >= target) break;
      }
      if (least > 0 && count > 0 && std::fabs(weights[count] - least) < errors[count]) sure = false;
      if (weights[count] < least) break;
      reached += weights[count];
    }
    // Different logits whose f32 weights are perhaps equal: the reference ranks those by id.
    if (count < weights.size() && weights[count] > 0 && weights[count - 1] != weights[count] &&
        weights[count - 1] - weights[count] < errors[count - 1] + errors[count]) {
      sure = false;
    }
    return count;
  }
};

// Both sides err alike: sum p (|d| + 4) 2^-24 in the sum, where sum p |d| <= log(vocabulary) < 13, and one rounding of
// the result.
void expect_logprob(float got, float want, const std::string& where) {
  if (std::isnan(want) || std::isinf(want)) {
    EXPECT_EQ(std::isnan(got), std::isnan(want)) << where;  // NaN: the poison, nothing was wanted
    if (!std::isnan(want)) {
      EXPECT_EQ(got, want) << where;
    }
  } else {
    EXPECT_NEAR(got, want, (2 * std::fabs(static_cast<double>(want)) + 34) * 0x1p-24) << where;
  }
}

// Rows that were compared.
int expect_equal(const Batch& batch, const Outcome& got) {
  const Outcome want = on_cpu(batch);
  int compared = 0;
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    const std::string where = "row " + std::to_string(r);
    const auto row = static_cast<std::int64_t>(r);
    for (int i = 0; i < kTopLogprobsMax; ++i) {
      EXPECT_EQ(got.top_tokens->row<std::int32_t>(row)[i], want.top_tokens->row<std::int32_t>(row)[i]) << where;
      expect_logprob(got.top_logprobs->row<float>(row)[i], want.top_logprobs->row<float>(row)[i], where);
    }
    const Definition definition(adjusted(batch, r), batch.rows[r]);
    if (!definition.sure) continue;
    ++compared;
    EXPECT_TRUE(definition.allows(got.token(r))) << where << ": " << got.token(r);
    EXPECT_TRUE(definition.allows(want.token(r))) << where << ", reference: " << want.token(r);
    if (got.token(r) == want.token(r)) {
      expect_logprob(got.logprobs->as<float>()[r], want.logprobs->as<float>()[r], where);
    }
    const std::int32_t slot = batch.rows[r].slot;
    if (slot >= 0) {
      EXPECT_EQ(got.last_tokens->as<std::int32_t>()[slot], std::max(got.token(r), 0)) << where;
    }
  }
  return compared;
}

enum class Shape { kRandom, kPeaked, kTied, kAllEqual, kSomeImpossible };

float logit(Shape shape, std::uint64_t seed, std::uint64_t i) {
  const float x = testing::random_value(seed, i, 1);
  switch (shape) {
    case Shape::kRandom:
      return 12 * x;
    case Shape::kPeaked:
      return 30 * x * x * x * x * x;
    case Shape::kTied:
      return std::round(4 * x) / 2;  // 0 of both signs too
    case Shape::kAllEqual:
      return 1;
    case Shape::kSomeImpossible:
      return i > 0 && x < 0 ? -kInf : 6 * x;
  }
  return 0;
}

// Options by mixed radix, so that consecutive numbers run through all of them.
struct Options {
  std::size_t number;
  template <class T>
  T pick(std::initializer_list<T> choices) {
    const T choice = choices.begin()[number % choices.size()];
    number /= choices.size();
    return choice;
  }
};

constexpr std::size_t kOptions = 4 * 4 * 4 * 2 * 2 * 3;

void add_adjustments(Batch& batch, SampleRow& row, std::size_t count, bool repeats, std::uint64_t seed) {
  const auto vocabulary = static_cast<std::uint64_t>(batch.vocabulary());
  row.adjustments_begin = static_cast<std::int32_t>(batch.adjustments.size());
  for (std::uint64_t a = 0; a < (repeats ? count : std::min<std::uint64_t>(count, vocabulary)); ++a) {
    const std::uint64_t token = (random_bits(seed, 0) % vocabulary + (repeats ? a / 3 : a) * 7919) % vocabulary;
    batch.adjustments.push_back({static_cast<std::int32_t>(token), testing::random_value(seed, a + 1, 2),
                                 a % 4 == 0 ? 1.f : 1.0f + 0.5f * random_unit(seed, a + 1)});
  }
  row.adjustments_end = static_cast<std::int32_t>(batch.adjustments.size());
}

Batch make_batch(std::int64_t vocabulary, Shape shape, const std::vector<std::size_t>& numbers) {
  Batch batch;
  const auto rows = static_cast<std::int64_t>(numbers.size());
  batch.logits = OwnedTensor(DType::kF32, {rows, vocabulary});
  batch.slots = 2 * rows + 1;
  const std::int64_t words = (vocabulary + 31) / 32;
  batch.masks = OwnedTensor(DType::kI32, {2, words}, 0);  // row 0 allows nothing: nobody may read it
  for (std::int64_t w = 0; w < words; ++w) {
    const std::uint64_t bits = random_bits(5, static_cast<std::uint64_t>(w)) | (w == 0 ? 1 : 0);
    batch.masks->row<std::int32_t>(1)[w] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto seed = static_cast<std::uint64_t>(1000 + r);
    for (std::int64_t i = 0; i < vocabulary; ++i)
      batch.logits->row<float>(r)[i] = logit(shape, seed, static_cast<std::uint64_t>(i));
    Options options{numbers[static_cast<std::size_t>(r)]};
    SampleRow row;
    row.temperature = options.pick({0.7f, 0.f, 1.5f, 1e-30f});
    row.top_k = options.pick({0, 40, 1, 300000});
    row.top_p = options.pick({1.f, 0.9f, 0.3f, 0.f});
    row.min_p = options.pick({0.f, 0.05f});
    row.mask_row = options.pick({-1, 1});
    const std::size_t adjustments = options.pick<std::size_t>({0, 12, 3000});
    row.seed = seed;
    row.counter = static_cast<std::uint64_t>(r) * 3;
    row.slot = r % 2 == 0 ? static_cast<std::int32_t>(2 * r + 1) : -1;
    row.top_logprobs = std::vector<std::int32_t>{-1, 0, 5, kTopLogprobsMax, 1}[static_cast<std::size_t>(r % 5)];
    if (adjustments > 0) add_adjustments(batch, row, adjustments, r % 3 == 0, seed);
    batch.rows.push_back(row);
  }
  return batch;
}

struct Case {
  const char* name;
  std::int64_t vocabulary;
  Shape shape;
};

class CudaSample : public ::testing::TestWithParam<Case> {};

TEST_P(CudaSample, EqualsTheReferenceUnderEveryOption) {
  const Case c = GetParam();
  std::vector<std::size_t> numbers;
  if (c.vocabulary < 10000) {
    numbers.resize(kOptions);
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  } else {
    for (std::size_t i = 0; i < 40; ++i) numbers.push_back(i * 61 % kOptions);  // 61 shares no factor with kOptions
  }
  const Batch batch = make_batch(c.vocabulary, c.shape, numbers);
  const int compared = expect_equal(batch, on_gpu(batch));
  EXPECT_GE(compared, static_cast<int>(batch.rows.size() * 9 / 10));
}

INSTANTIATE_TEST_SUITE_P(
    Logits, CudaSample,
    ::testing::Values(Case{"one_token", 1, Shape::kRandom}, Case{"seven", 7, Shape::kRandom},
                      Case{"seven_tied", 7, Shape::kTied}, Case{"a_thousand", 1000, Shape::kRandom},
                      Case{"a_thousand_tied", 1000, Shape::kTied}, Case{"rows_unaligned", 1001, Shape::kPeaked},
                      Case{"some_impossible", 1000, Shape::kSomeImpossible},
                      Case{"three_a_lane", 20001, Shape::kSomeImpossible}, Case{"whole_random", kWhole, Shape::kRandom},
                      Case{"whole_peaked", kWhole, Shape::kPeaked}, Case{"whole_tied", kWhole, Shape::kTied},
                      Case{"whole_equal", kWhole, Shape::kAllEqual}),
    [](const auto& info) { return std::string(info.param.name); });

// One row uses as many blocks as one of many does, and its place does not matter.
TEST(CudaSampleRows, EachRowCountGivesTheSameRows) {
  const Batch five = make_batch(kWhole, Shape::kPeaked, {0, 4, 16, 20, 84});
  const Outcome want = on_gpu(five);
  for (std::int64_t r = 0; r < 5; ++r) {
    Batch one;
    one.slots = five.slots;
    one.logits = OwnedTensor(DType::kF32, {1, kWhole});
    std::memcpy(one.logits->raw(), five.logits->row<float>(r), kWhole * sizeof(float));
    one.rows = {five.rows[static_cast<std::size_t>(r)]};
    one.adjustments = five.adjustments;
    one.masks = OwnedTensor(DType::kI32, {2, kWhole / 32});
    std::memcpy(one.masks->raw(), five.masks->raw(), five.masks->bytes());
    const Outcome got = on_gpu(one);
    EXPECT_EQ(got.token(0), want.token(static_cast<std::size_t>(r)));
    EXPECT_EQ(std::memcmp(got.top_logprobs->raw(), want.top_logprobs->row<float>(r), kTopLogprobsMax * 4), 0);
    EXPECT_EQ(std::memcmp(got.logprobs->raw(), want.logprobs->as<float>() + r, 4), 0);
  }
}

// Small enough for the sanitizers.
TEST(CudaSampleRows, AFewRowsOfEveryKindEqualTheReference) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < 15; ++i) numbers.push_back(i % 5 == 0 ? i / 5 : i * 61 % kOptions);  // 0, 5, 10: plain
  const Batch batch = make_batch(2001, Shape::kRandom, numbers);
  EXPECT_GE(expect_equal(batch, on_gpu(batch)), 12);
}

// Rows that nothing is asked of but a temperature, in batches that launch differently.
Batch make_plain_batch(std::int64_t vocabulary, std::int64_t count) {
  Batch batch;
  batch.logits = OwnedTensor(DType::kF32, {count, vocabulary});
  batch.slots = count;
  for (std::int64_t r = 0; r < count; ++r) {
    float* const logits = batch.logits->row<float>(r);
    const auto seed = static_cast<std::uint64_t>(77 + r);
    for (std::int64_t i = 0; i < vocabulary; ++i)
      logits[i] = testing::random_value(seed, static_cast<std::uint64_t>(i), r % 5 == 4 ? 2.f : 9.f);
    if (r % 8 == 5) logits[2] = -kInf;
    if (r % 16 == 6) logits[0] = logits[vocabulary - 1] = kInf;
    if (r % 16 == 14) logits[vocabulary - 1] = kNaN;
    batch.rows.push_back(
        {.temperature = std::vector<float>{1, 0.7f, 0, 1.3f, 1, 0.01f}[static_cast<std::size_t>(r % 6)],
         .seed = seed,
         .counter = static_cast<std::uint64_t>(r * r),
         .slot = static_cast<std::int32_t>(r)});
  }
  return batch;
}

TEST(CudaSampleRows, PlainRowsFollowTheDefinitionHoweverManyThereAre) {
  for (const std::int64_t vocabulary : {std::int64_t{4}, std::int64_t{132}, std::int64_t{20004}, kWhole}) {
    std::vector<std::int32_t> of_many;
    for (const std::int64_t count : {std::int64_t{130}, std::int64_t{50}, std::int64_t{3}}) {
      const Batch batch = make_plain_batch(vocabulary, count);
      const Outcome got = on_gpu(batch);
      for (std::size_t r = 0; r < batch.rows.size(); ++r) {
        const std::string where = std::to_string(r) + " of " + std::to_string(count) + " rows of " +
                                  std::to_string(vocabulary) + ": " + std::to_string(got.token(r));
        EXPECT_EQ(got.last_tokens->as<std::int32_t>()[r], std::max(got.token(r), 0)) << where;
        if (count < 130) {
          EXPECT_EQ(got.token(r), of_many[r]) << where;
          continue;
        }
        of_many.push_back(got.token(r));
        if (r % 16 == 14) {
          EXPECT_EQ(got.token(r), -1) << where;
        } else if (vocabulary < kWhole || r % 3 == 0) {
          EXPECT_TRUE(Definition(adjusted(batch, r), batch.rows[r]).allows(got.token(r))) << where;
        }
      }
    }
  }
}

TEST(CudaSampleRows, NoRowsWriteNothing) {
  Batch batch;
  batch.logits = OwnedTensor(DType::kF32, {0, 7});
  const Outcome got = on_gpu(batch);
  for (int s = 0; s < 4; ++s) EXPECT_EQ(got.last_tokens->as<std::int32_t>()[s], -1);  // the poison
}

Batch batch_of(const std::vector<std::vector<float>>& logits, std::vector<SampleRow> rows) {
  Batch batch;
  batch.rows = std::move(rows);
  batch.logits =
      OwnedTensor(DType::kF32, {static_cast<std::int64_t>(logits.size()), static_cast<std::int64_t>(logits[0].size())});
  for (std::size_t r = 0; r < logits.size(); ++r)
    std::copy(logits[r].begin(), logits[r].end(), batch.logits->row<float>(static_cast<std::int64_t>(r)));
  return batch;
}

TEST(CudaSampleRows, ANanRowFailsAloneAndLeavesAnIdThatCanBeEmbedded) {
  Batch batch = batch_of({{1, 2, 3}, {1, kNaN, 3}, {-kInf, -kInf, -kInf}, {kInf, 0, kInf}, {0, kNaN, 1}, {1, 2, 3}},
                         {{.temperature = 0, .slot = 0},
                          {.slot = 1, .top_logprobs = 3},
                          {.slot = 2, .top_logprobs = 0},
                          {.top_p = 0.9f, .slot = 3, .top_logprobs = 2},
                          {.temperature = 0, .slot = 4, .mask_row = 0},  // masked, yet a sign of a broken row
                          {.slot = 5, .adjustments_begin = 0, .adjustments_end = 1}});
  batch.slots = 6;
  batch.masks = OwnedTensor(DType::kI32, {1, 1}, 0);
  batch.masks->as<std::int32_t>()[0] = 5;
  batch.adjustments = {{1, kNaN, 1}};
  const Outcome got = on_gpu(batch), want = on_cpu(batch);
  for (std::size_t r = 0; r < 6; ++r) EXPECT_EQ(got.token(r), want.token(r)) << r;
  for (int s = 0; s < 6; ++s)
    EXPECT_EQ(got.last_tokens->as<std::int32_t>()[s], want.last_tokens->as<std::int32_t>()[s]) << s;
  EXPECT_EQ(std::memcmp(got.top_tokens->raw(), want.top_tokens->raw(), want.top_tokens->bytes()), 0);
  for (std::size_t r = 0; r < 6; ++r)
    expect_logprob(got.logprobs->as<float>()[r], want.logprobs->as<float>()[r], "row " + std::to_string(r));
  EXPECT_EQ(got.token(1), -1);
  EXPECT_EQ(got.token(4), -1);
}

TEST(CudaSampleRows, TheLowestIdWinsTiesAcrossTheWholeRow) {
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{799}, std::int64_t{25600}, kWhole - 2}) {
    std::vector<float> logits(static_cast<std::size_t>(kWhole), -3.f);
    logits[static_cast<std::size_t>(at)] = logits[static_cast<std::size_t>(kWhole - 1)] = 2;
    EXPECT_EQ(on_gpu(batch_of({logits}, {{.temperature = 0}})).token(0), at);
    EXPECT_EQ(on_gpu(batch_of({logits}, {{.top_k = 1, .seed = 3}})).token(0), at);
  }
}

TEST(CudaSampleRows, AMaskThatAllowsNothingFailsTheRow) {
  Batch batch = batch_of({{1, 2}}, {{.slot = 0, .mask_row = 0}});
  batch.masks = OwnedTensor(DType::kI32, {1, 1}, 0);
  const Outcome got = on_gpu(batch);
  EXPECT_EQ(got.token(0), -1);
  EXPECT_EQ(got.last_tokens->as<std::int32_t>()[0], 0);
}

TEST(CudaSampleRows, LogitsMayLieInWiderRowsAndOutputsMayBeLeftOut) {
  Gpu gpu;
  const OwnedTensor wide = testing::random_tensor(DType::kF32, {3, 1003}, 4, 9);
  const OwnedTensor narrow(DType::kF32, {3, 998}), tokens(DType::kI32, {3}), want(DType::kI32, {3});
  for (int r = 0; r < 3; ++r) std::memcpy(narrow->row<float>(r), wide->row<float>(r) + 5, 998 * sizeof(float));
  const std::vector<SampleRow> rows = {{.temperature = 0}, {.top_k = 1}, {.top_p = 0}};
  sample(Stream::cpu(1), {*narrow, rows.data(), nullptr, {}}, {*want, {}, {}, {}, {}});
  const Tensor device = gpu.like(*tokens);
  cuda::sample(gpu.stream, {gpu.upload(*wide).slice(1, 5, 1003), upload(gpu, rows), nullptr, {}},
               {device, {}, {}, {}, {}});
  gpu.download(device, *tokens);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(tokens->as<std::int32_t>()[r], want->as<std::int32_t>()[r]);
}

// Pearson's statistic of n draws from `degrees` + 1 tokens exceeds degrees + 2 sqrt(degrees t) + 2 t with probability
// below exp(-t) (Laurent and Massart 2000, lemma 1, for its limit); t = 14: one in a million.
TEST(CudaSampleRows, FrequenciesFollowTheDistribution) {
  constexpr int kDraws = 16384, kTokens = 40;
  Batch batch;
  batch.logits = OwnedTensor(DType::kF32, {kDraws, kTokens});
  double total = 0;
  std::vector<double> shares;
  for (int t = 0; t < kTokens; ++t) {
    const float value = testing::random_value(8, static_cast<std::uint64_t>(t), 1.5f);  // the rarest comes 60 times
    for (int r = 0; r < kDraws; ++r) batch.logits->row<float>(r)[t] = value;
    shares.push_back(std::exp(static_cast<double>(value)));
    total += shares.back();
  }
  for (int r = 0; r < kDraws; ++r) batch.rows.push_back({.seed = 21, .counter = static_cast<std::uint64_t>(r)});
  const Outcome got = on_gpu(batch);
  std::vector<int> counts(kTokens, 0);
  for (std::size_t r = 0; r < kDraws; ++r) {
    ASSERT_TRUE(got.token(r) >= 0 && got.token(r) < kTokens);
    ++counts[static_cast<std::size_t>(got.token(r))];
  }
  double statistic = 0;
  for (std::size_t t = 0; t < kTokens; ++t) {
    const double want = kDraws * shares[t] / total;
    statistic += (counts[t] - want) * (counts[t] - want) / want;
  }
  constexpr double kDegrees = kTokens - 1, kT = 14;
  EXPECT_LT(statistic, kDegrees + 2 * std::sqrt(kDegrees * kT) + 2 * kT);
}

}  // namespace
}  // namespace rose::ops
