#include "ops/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Outputs {
  OwnedTensor tokens, logprobs, top_tokens, top_logprobs, last_tokens;

  explicit Outputs(std::int64_t rows) {
    tokens = OwnedTensor(DType::kI32, {rows});
    logprobs = OwnedTensor(DType::kF32, {rows});
    top_tokens = OwnedTensor(DType::kI32, {rows, kTopLogprobsMax});
    top_logprobs = OwnedTensor(DType::kF32, {rows, kTopLogprobsMax});
    last_tokens = OwnedTensor(DType::kI32, {4});
  }
  SampleOutputs all() const { return {*tokens, *logprobs, *top_tokens, *top_logprobs, *last_tokens}; }
  std::int32_t token(std::int64_t r) const { return tokens->as<std::int32_t>()[r]; }
};

OwnedTensor logit_rows(const std::vector<std::vector<float>>& rows) {
  OwnedTensor tensor(DType::kF32, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r].begin(), rows[r].end(), tensor->row<float>(static_cast<std::int64_t>(r)));
  }
  return tensor;
}

std::int32_t one(const std::vector<float>& logits, const SampleRow& row,
                 const std::vector<LogitAdjustment>& adjustments = {}, const std::vector<std::int32_t>& mask = {}) {
  const OwnedTensor rows = logit_rows({logits});
  const OwnedTensor masks = testing::int_tensor(mask);
  const Outputs outputs(1);
  sample(Stream::cpu(1),
         {*rows, &row, adjustments.data(),
          mask.empty() ? Tensor() : masks->reshape({1, static_cast<std::int64_t>(mask.size())})},
         outputs.all());
  return outputs.token(0);
}

// The definition, by a full sort in double: kept tokens and their shares.
std::map<std::int32_t, double> kept(const std::vector<float>& z, const SampleRow& row) {
  std::vector<std::int32_t> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return z[static_cast<std::size_t>(a)] > z[static_cast<std::size_t>(b)]; });
  const auto top = static_cast<double>(z[static_cast<std::size_t>(order[0])]);
  const auto weight = [&](std::int32_t t) {
    return std::exp((static_cast<double>(z[static_cast<std::size_t>(t)]) - top) / static_cast<double>(row.temperature));
  };
  double total = 0;
  for (const std::int32_t t : order) total += weight(t);
  std::map<std::int32_t, double> result;
  double reached = 0;
  double sum = 0;
  for (const std::int32_t t : order) {
    if (row.top_k > 0 && result.size() == static_cast<std::size_t>(row.top_k)) break;
    if (!result.empty() && reached >= static_cast<double>(row.top_p)) break;
    if (weight(t) < static_cast<double>(row.min_p)) break;
    result[t] = weight(t);
    reached += weight(t) / total;
    sum += weight(t);
  }
  for (auto& [token, share] : result) share /= sum;
  return result;
}

std::int32_t inverse(const std::map<std::int32_t, double>& shares, double u, double* distance) {
  double sum = 0;
  *distance = 1;
  std::int32_t token = -1;
  for (const auto& [id, share] : shares) {  // by rising id
    sum += share;
    *distance = std::min(*distance, std::fabs(sum - u));
    if (token < 0 && sum > u) token = id;
  }
  return token < 0 ? shares.rbegin()->first : token;
}

std::vector<float> random_logits(std::size_t size, std::uint64_t seed, float spread) {
  std::vector<float> logits(size);
  for (std::size_t i = 0; i < size; ++i) logits[i] = testing::random_value(seed, i, spread);
  return logits;
}

TEST(Sample, TemperatureZeroTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(one({1, 7, 3, 7}, {.temperature = 0}), 1);
  EXPECT_EQ(one({-kInf, -9, -kInf}, {.temperature = 0}), 1);
  EXPECT_EQ(one({5}, {.temperature = 0}), 0);
}

TEST(Sample, EqualsTheDefinitionUnderEveryFilter) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::size_t size = seed % 3 == 0 ? 5 : seed % 3 == 1 ? 97 : 1000;
    const std::vector<float> logits = random_logits(size, seed, 6);
    SampleRow row{.temperature = 0.3f + static_cast<float>(seed % 5) * 0.4f, .seed = seed, .counter = seed * 3};
    if (seed % 2 == 1) row.top_k = static_cast<std::int32_t>(1 + seed % 40);
    if (seed % 4 >= 2) row.top_p = 0.05f + static_cast<float>(seed % 10) * 0.1f;
    if (seed % 8 >= 4) row.min_p = 0.01f * static_cast<float>(seed % 30);
    const auto shares = kept(logits, row);
    double distance = 0;
    const std::int32_t want = inverse(shares, static_cast<double>(random_unit(row.seed, row.counter)), &distance);
    if (distance < 1e-5) continue;  // f32 weights may fall on either side
    ++compared;
    EXPECT_EQ(one(logits, row), want) << "seed " << seed;
  }
  EXPECT_GT(compared, 550);
}

TEST(Sample, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  const int draws = 20000;
  int counts[3] = {};
  for (int i = 0; i < draws; ++i) ++counts[one(logits, {.seed = 9, .counter = static_cast<std::uint64_t>(i)})];
  const double want[3] = {1.0 / 8, 2.0 / 8, 5.0 / 8};
  for (int t = 0; t < 3; ++t) {  // five standard deviations
    EXPECT_NEAR(counts[t], want[t] * draws, 5 * std::sqrt(draws * want[t] * (1 - want[t]))) << t;
  }
}

TEST(Sample, TopKBreaksTiesByTheLowestId) {
  for (std::uint64_t counter = 0; counter < 200; ++counter) {
    EXPECT_LT(one({1, 1, 1, 1, 1, 1}, {.top_k = 2, .counter = counter}), 2);
  }
}

TEST(Sample, TopPKeepsTheSmallestSetThatReachesIt) {
  std::map<std::int32_t, int> seen;
  for (std::uint64_t counter = 0; counter < 300; ++counter)
    ++seen[one({0, 0, 0, 0}, {.top_p = 0.5f, .counter = counter})];
  EXPECT_EQ(seen.size(), 2u);  // two quarters are exactly a half
  EXPECT_TRUE(seen.count(0) && seen.count(1));
  EXPECT_EQ(one({0, 1, 0}, {.top_p = 0}), 1);  // the largest always stays
}

TEST(Sample, MinPIsRelativeToTheLargest) {
  std::map<std::int32_t, int> seen;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  for (std::uint64_t counter = 0; counter < 300; ++counter) ++seen[one(logits, {.min_p = 0.5f, .counter = counter})];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_FALSE(seen.count(2));
}

TEST(Sample, ALowTemperatureApproachesTheLargest) {
  for (std::uint64_t counter = 0; counter < 100; ++counter) {
    EXPECT_EQ(one({1, 1.5f, 1.2f}, {.temperature = 1e-30f, .counter = counter}), 1);
  }
}

TEST(Sample, MasksAllowTheirBitsAlone) {
  std::vector<float> logits(70, 0.0f);
  logits[3] = 50;
  const std::vector<std::int32_t> mask = {0, static_cast<std::int32_t>(0x80000000u), 1};  // tokens 63 and 64
  EXPECT_EQ(one(logits, {.temperature = 0, .mask_row = 0}, {}, mask), 63);
  std::map<std::int32_t, int> seen;
  for (std::uint64_t counter = 0; counter < 100; ++counter)
    ++seen[one(logits, {.counter = counter, .mask_row = 0}, {}, mask)];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.count(63) && seen.count(64));
}

TEST(SampleDeathTest, AMaskThatAllowsNothingIsOurBug) {
  EXPECT_DEATH(one({1, 2}, {.mask_row = 0}, {}, {~3}), "allows no token");
}

TEST(Sample, AdjustmentsScaleTowardsZeroThenAdd) {
  const SampleRow row{.temperature = 0, .adjustments_begin = 0, .adjustments_end = 2};
  EXPECT_EQ(one({4, 3, -1}, row, {{0, 0, 2}, {2, 0, 2}}), 1);     // 2, 3, -2
  EXPECT_EQ(one({4, 3, -1}, row, {{2, 6.5f, 2}, {0, 0, 1}}), 2);  // 4, 3, 4.5
  EXPECT_EQ(one({4, 3, -1}, row, {{0, -100, 1}, {1, -100, 1}}), 2);
}

TEST(Sample, OnlyTheRowsOwnAdjustmentsApply) {
  const OwnedTensor logits = logit_rows({{4, 3}, {4, 3}});
  const SampleRow rows[] = {{.temperature = 0, .adjustments_begin = 0, .adjustments_end = 1},
                            {.temperature = 0, .adjustments_begin = 1, .adjustments_end = 1}};
  const LogitAdjustment adjustments[] = {{0, -5, 1}};
  const Outputs outputs(2);
  sample(Stream::cpu(2), {*logits, rows, adjustments, {}}, outputs.all());
  EXPECT_EQ(outputs.token(0), 1);
  EXPECT_EQ(outputs.token(1), 0);
}

TEST(Sample, ANanRowFailsAloneAndLeavesAnIdThatCanBeEmbedded) {
  const OwnedTensor logits = logit_rows({{1, 2, 3}, {1, kNan, 3}, {-kInf, -kInf, -kInf}, {kInf, 0, kInf}});
  const SampleRow rows[] = {
      {.temperature = 0, .slot = 0}, {.slot = 1, .top_logprobs = 3}, {.slot = 2}, {.slot = 3, .top_logprobs = 2}};
  const Outputs outputs(4);
  sample(Stream::cpu(2), {*logits, rows, nullptr, {}}, outputs.all());
  EXPECT_EQ(outputs.token(0), 2);
  EXPECT_EQ(outputs.token(1), -1);
  EXPECT_EQ(outputs.token(2), -1);
  EXPECT_TRUE(outputs.token(3) == 0 || outputs.token(3) == 2);
  const std::int32_t want[] = {2, 0, 0, outputs.token(3)};
  for (int s = 0; s < 4; ++s) EXPECT_EQ(outputs.last_tokens->as<std::int32_t>()[s], want[s]) << s;
  EXPECT_EQ(outputs.top_tokens->row<std::int32_t>(1)[0], -1);
  EXPECT_EQ(outputs.logprobs->as<float>()[3], 0.0f);
}

TEST(Sample, RowsWithoutASlotLeaveTheTableAlone) {
  const OwnedTensor logits = logit_rows({{1, 2}});
  const SampleRow row{.temperature = 0};
  const Outputs outputs(1);
  sample(Stream::cpu(1), {*logits, &row, nullptr, {}}, outputs.all());
  for (int s = 0; s < 4; ++s) EXPECT_EQ(outputs.last_tokens->as<std::int32_t>()[s], -1);  // the poison
}

TEST(Sample, LogprobsAreOfTheLogitsAsGiven) {
  const std::vector<float> logits = random_logits(500, 3, 8);
  const OwnedTensor tensor = logit_rows({logits});
  const SampleRow row{.temperature = 0, .top_k = 1, .top_logprobs = 5, .adjustments_begin = 0, .adjustments_end = 1};
  const LogitAdjustment adjustment{123, 1000, 1};
  const Outputs outputs(1);
  sample(Stream::cpu(1), {*tensor, &row, &adjustment, {}}, outputs.all());
  ASSERT_EQ(outputs.token(0), 123);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto want = [&](std::int32_t t) {
    return static_cast<double>(logits[static_cast<std::size_t>(t)]) - std::log(sum);
  };
  // f32 exponentials err by an ulp each, all the same way at worst; the result rounds once.
  EXPECT_NEAR(outputs.logprobs->as<float>()[0], want(123), 4e-6);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  for (int i = 0; i < kTopLogprobsMax; ++i) {
    EXPECT_EQ(outputs.top_tokens->as<std::int32_t>()[i], i < 5 ? order[static_cast<std::size_t>(i)] : -1) << i;
    if (i < 5) {
      EXPECT_NEAR(outputs.top_logprobs->as<float>()[i], want(order[static_cast<std::size_t>(i)]), 4e-6) << i;
    }
  }
}

TEST(Sample, TopLogprobsBreakTiesByTheLowestIdAndMayOutnumberTheVocabulary) {
  const OwnedTensor logits = logit_rows({{2, 2, 1, 2}});
  const SampleRow row{.temperature = 0, .top_logprobs = kTopLogprobsMax};
  const Outputs outputs(1);
  sample(Stream::cpu(1), {*logits, &row, nullptr, {}}, outputs.all());
  const std::int32_t want[] = {0, 1, 3, 2, -1};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(outputs.top_tokens->as<std::int32_t>()[i], want[i]);
  EXPECT_EQ(outputs.top_logprobs->as<float>()[4], -kInf);
}

TEST(Sample, ARowDependsOnItsSeedAndCounterAloneNotOnItsPlace) {
  const std::vector<float> logits = random_logits(300, 5, 3);
  const OwnedTensor tensor = logit_rows({logits, random_logits(300, 6, 3), logits});
  const SampleRow row{.top_p = 0.9f, .seed = 77, .counter = 5};
  const SampleRow rows[] = {row, {.seed = 1}, row};
  const Outputs outputs(3);
  sample(Stream::cpu(3), {*tensor, rows, nullptr, {}}, outputs.all());
  EXPECT_EQ(outputs.token(0), outputs.token(2));
  EXPECT_EQ(outputs.token(0), one(logits, row));
}

// 201,088 equal logits: the worst case of a selection that splits by value.
TEST(Sample, EqualLogitsOfAWholeVocabularyStayLinear) {
  const std::vector<float> logits(201088, 1.0f);
  const std::int32_t token = one(logits, {.top_p = 0.25f, .top_k = 100000, .seed = 3});
  EXPECT_GE(token, 0);
  EXPECT_LT(token, 201088 / 4);
}

}  // namespace
}  // namespace rose::ops
