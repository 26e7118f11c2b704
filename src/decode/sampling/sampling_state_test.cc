#include "decode/sampling/sampling_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "decode/decoder.h"

namespace rose {
namespace {

using Adjustments = std::vector<ops::LogitAdjustment>;

// The formula of ops/sample/sample.h.
double adjusted(double z, const Adjustments& adjustments, std::int32_t token) {
  for (const auto& a : adjustments) {
    if (a.token == token) z = (z > 0 ? z / a.repetition : z * a.repetition) + a.add;
  }
  return z;
}

TEST(SamplingState, CopiesTheOptionsIntoTheRow) {
  const DecodingOptions options{.temperature = 0.5f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 7, .top_logprobs = 3};
  Adjustments adjustments;
  const ops::SampleRow row = SamplingState(options, 42, {}).row(5, adjustments);
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.top_p, 0.9f);
  EXPECT_EQ(row.min_p, 0.1f);
  EXPECT_EQ(row.top_k, 7);
  EXPECT_EQ(row.top_logprobs, 3);
  EXPECT_EQ(row.seed, 42u);
  EXPECT_EQ(row.counter, 5u);
  EXPECT_TRUE(adjustments.empty());
}

TEST(SamplingState, PresenceCountsOnceAndFrequencyEachTimeOverGeneratedTokensOnly) {
  const DecodingOptions options{.presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  const std::vector<std::int32_t> prompt = {1, 2, 2};
  SamplingState state(options, 0, prompt);
  for (const std::int32_t token : {2, 2, 3}) state.advance(token);
  Adjustments adjustments;
  (void)state.row(3, adjustments);
  EXPECT_EQ(adjusted(1, adjustments, 1), 1);
  EXPECT_EQ(adjusted(1, adjustments, 2), 1 - 0.5 - 2 * 0.25);
  EXPECT_EQ(adjusted(1, adjustments, 3), 1 - 0.5 - 0.25);
}

TEST(SamplingState, RepetitionCoversPromptAndGeneratedTokensOnce) {
  const DecodingOptions options{.repetition_penalty = 2};
  const std::vector<std::int32_t> prompt = {1, 1};
  SamplingState state(options, 0, prompt);
  state.advance(4);
  state.advance(4);
  Adjustments adjustments;
  (void)state.row(2, adjustments);
  EXPECT_EQ(adjusted(3, adjustments, 1), 1.5);
  EXPECT_EQ(adjusted(-3, adjustments, 4), -6);
  EXPECT_EQ(adjusted(3, adjustments, 5), 3);
}

TEST(SamplingState, AppendsOneAdjustmentATokenAfterThoseAlreadyThere) {
  DecodingOptions options{.frequency_penalty = 1, .repetition_penalty = 2, .logit_bias = {{4, 2.0f}, {4, 3.0f}}};
  const std::vector<std::int32_t> prompt = {4};
  SamplingState state(options, 0, prompt);
  state.advance(4);
  Adjustments adjustments(2);
  const ops::SampleRow row = state.row(1, adjustments);
  EXPECT_EQ(row.adjustments_begin, 2);
  EXPECT_EQ(row.adjustments_end, 3);
  EXPECT_EQ(adjusted(2, adjustments, 4), 2 / 2 + 3 - 1);
  EXPECT_LE(row.adjustments_end - row.adjustments_begin, state.adjustments_max());
}

TEST(SamplingState, MasksStopTokensBeforeMinTokensOnly) {
  DecodingOptions options{.min_tokens = 2, .stop_tokens = {9, 8}};
  SamplingState state(options, 0, {});
  EXPECT_FALSE(state.needs_tokens());
  for (int number = 0; number < 4; ++number) {
    Adjustments adjustments;
    (void)state.row(number, adjustments);
    EXPECT_EQ(adjusted(100, adjustments, 9) == -std::numeric_limits<double>::infinity(), number < 2);
    EXPECT_EQ(adjusted(100, adjustments, 8) == -std::numeric_limits<double>::infinity(), number < 2);
  }
}

TEST(SamplingState, TheRowDependsOnTheNumberOfTheTokenAlone) {
  const DecodingOptions options{};
  SamplingState fresh(options, 7, {}), used(options, 7, {});
  for (int i = 0; i < 3; ++i) used.advance(i);
  Adjustments adjustments;
  EXPECT_EQ(fresh.row(3, adjustments).counter, used.row(3, adjustments).counter);
  EXPECT_EQ(fresh.row(3, adjustments).seed, used.row(3, adjustments).seed);
}

TEST(Decoder, AcceptsUpToAndWithTheFirstMismatch) {
  const auto accept = [](std::vector<std::int32_t> drafts, std::vector<std::int32_t> sampled) {
    return accept_matching(drafts, sampled);
  };
  EXPECT_EQ(accept({}, {5}), 1);
  EXPECT_EQ(accept({5, 6}, {5, 6, 7}), 3);
  EXPECT_EQ(accept({5, 6}, {5, 9, 7}), 2);
  EXPECT_EQ(accept({5, 6}, {4, 6, 7}), 1);
  EXPECT_EQ(accept({5, 6}, {-1, 6, 7}), 1);
}

}  // namespace
}  // namespace rose
