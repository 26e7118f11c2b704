#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "engine/testing/stepper.h"

namespace rose {
namespace {

using testing::draft_decoders;
using testing::expected_outcome;
using testing::Outcome;
using testing::Stepper;
using testing::StepperOptions;

std::vector<std::int32_t> prompt_of(int length, int first = 1) {
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) prompt[static_cast<std::size_t>(i)] = (first + i * 7) % 97;
  return prompt;
}

Request request_of(RequestId id, std::vector<std::int32_t> prompt, int max_tokens, int n = 1) {
  Request request{.id = id, .prompt = std::move(prompt), .n = n};
  request.decoding.temperature = 0;
  request.decoding.max_tokens = max_tokens;
  return request;
}

StepperOptions options_of(int page_size, std::vector<PageSetLimits> sets, int rows_max = 64) {
  StepperOptions options;
  options.model.positions_max = 100;
  options.model.windows.clear();
  for (const PageSetLimits& set : sets) options.model.windows.push_back(set.window);
  options.limits = {.rows_max = rows_max, .logit_rows_max = 16, .sequences_max = 4, .page_size = page_size};
  options.limits.sets = std::move(sets);
  return options;
}

void expect_as_alone(const Stepper& stepper, const Request& request, const StepperOptions& options) {
  const Outcome expected = expected_outcome(request, options);
  for (const Outcome& outcome : stepper.outcome(request.id)) {
    EXPECT_EQ(outcome.tokens, expected.tokens) << "request " << request.id;
    EXPECT_EQ(outcome.finish, expected.finish) << "request " << request.id;
  }
}

void expect_all_pages_back(const Stepper& stepper, const Scheduler& scheduler) {
  for (int set = 0; set < scheduler.tables().sets(); ++set) {
    const PagePool& pool = scheduler.tables().pool(set);
    EXPECT_EQ(pool.available(), pool.total()) << "KV set " << set;
  }
  EXPECT_EQ(stepper.steps_in_flight(), 0);
}

// The engine matrix: every answer is what the model predicts for that request alone, under every setting.
struct Setting {
  std::string name;
  int page_size;
  int rows_max;
  std::vector<PageSetLimits> sets;
  int depth;
  bool prefix_cache;
  int drafts = 0;
};

class Matrix : public ::testing::TestWithParam<Setting> {};

TEST_P(Matrix, EveryAnswerIsThatOfTheRequestAlone) {
  const Setting& setting = GetParam();
  StepperOptions options = options_of(setting.page_size, setting.sets, setting.rows_max);
  options.model.positions_max = 64;
  options.limits.prefix_cache = setting.prefix_cache;
  if (setting.drafts > 0) options.decoders = draft_decoders(options.model, setting.drafts, 0.6);
  Stepper stepper(options);
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    const int id = i + 1;
    // Every third prompt begins like the first; lengths straddle pages and chunks.
    Request request = request_of(static_cast<RequestId>(id), prompt_of(1 + (i * 13) % 40, i % 3 == 0 ? 1 : i),
                                 1 + (i * 5) % 20, 1 + i % 3);
    request.decoding.stop_tokens = {3, 50, 77};
    request.decoding.min_tokens = std::min(i, request.decoding.max_tokens);
    request.decoding.ignore_stop = i == 4;
    if (i % 4 == 1) request.decoding.frequency_penalty = 1.5f;
    if (i % 4 == 2) request.decoding.repetition_penalty = 1.25f;
    request.priority = i % 2;
    requests.push_back(request);
    stepper.add(request);
    if (i % 3 == 1 && stepper.plan()) stepper.commit();
  }
  ASSERT_TRUE(stepper.finish(setting.depth));
  for (const Request& request : requests) expect_as_alone(stepper, request, options);
  expect_all_pages_back(stepper, stepper.scheduler());
}

std::vector<Setting> settings() {
  const auto plenty = [](int pages) { return std::vector<PageSetLimits>{{0, pages}, {5, pages}}; };
  return {
      {"plain", 4, 64, plenty(200), 1, true},
      {"ahead", 4, 64, plenty(200), 2, true},
      {"three_ahead", 4, 64, plenty(200), 3, true},
      {"page_of_1", 1, 64, plenty(400), 2, true},
      {"page_of_32", 32, 64, plenty(40), 2, true},
      {"chunk_of_7", 4, 7, plenty(200), 2, true},
      {"chunk_of_1", 4, 1, plenty(200), 2, true},
      {"no_prefix_cache", 4, 7, plenty(200), 2, false},
      {"smallest_pool", 4, 64, {{0, 16}, {5, 2}}, 2, true},
      {"smallest_pool_no_cache", 4, 64, {{0, 16}, {5, 2}}, 2, false},
      {"smallest_pool_page_of_1", 1, 7, {{0, 64}, {5, 5}}, 2, true},
      {"small_pool", 4, 16, {{0, 20}, {5, 12}}, 2, true},
      {"small_windowed_pool", 4, 64, {{0, 200}, {5, 3}}, 2, true},
      {"pool_of_3_pages", 32, 64, {{0, 3}, {5, 3}}, 2, true},
      {"windows_only", 4, 16, {{3, 9}, {9, 12}}, 2, true},
      {"window_of_1", 4, 16, {{0, 40}, {1, 8}}, 2, true},
      {"full_only", 4, 16, {{0, 24}}, 2, true},
      {"drafts", 4, 64, plenty(200), 1, true, 3},
      {"drafts_ahead", 4, 64, plenty(200), 2, true, 3},
      {"drafts_chunk_of_7", 1, 7, plenty(300), 2, true, 5},
      {"drafts_small_pool", 4, 16, {{0, 18}, {5, 6}}, 2, true, 3},
  };
}
INSTANTIATE_TEST_SUITE_P(Settings, Matrix, ::testing::ValuesIn(settings()),
                         [](const auto& param) { return param.param.name; });

TEST(Scheduler, DecodesFirstAndFillsTheStepWithChunksOfPrompts) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}}, 16);
  Stepper stepper(options);
  stepper.add(request_of(1, prompt_of(3), 10));
  ASSERT_TRUE(stepper.plan());
  stepper.commit();
  stepper.add(request_of(2, prompt_of(40), 10));
  ASSERT_TRUE(stepper.plan());
  const Step& step = stepper.last_planned();
  ASSERT_EQ(step.parts.size(), 2u);
  EXPECT_EQ(step.parts[0].sequence->owner->request.id, 1u);
  EXPECT_EQ(step.parts[0].new_tokens, 1);
  EXPECT_EQ(step.parts[1].new_tokens, 15);
  EXPECT_EQ(step.parts[1].logit_rows, 0);
  EXPECT_EQ(step.rows, 16);
  ASSERT_TRUE(stepper.finish(1));
}

TEST(Scheduler, PlansTheNextStepBeforeTheTokensOfThisOneAreSeen) {
  Stepper stepper(options_of(4, {{0, 50}, {5, 20}}));
  stepper.add(request_of(1, prompt_of(3), 10));
  ASSERT_TRUE(stepper.plan());
  ASSERT_TRUE(stepper.plan());
  EXPECT_TRUE(stepper.last_planned().parts.at(0).token_on_device);
  ASSERT_TRUE(stepper.finish(2));
  // Ten tokens, ten steps: a length that ends at max_tokens is seen ahead and costs no row.
  EXPECT_EQ(stepper.steps_run(), 10);
}

TEST(Scheduler, AStopTokenEndsTheSequenceAndIsDelivered) {
  StepperOptions options = options_of(4, {{0, 50}, {5, 20}});
  Request request = request_of(1, prompt_of(3), 40);
  request.decoding.stop_tokens = {expected_outcome(request, options).tokens[4]};
  Stepper stepper(options);
  stepper.add(request);
  ASSERT_TRUE(stepper.finish(2));
  const Outcome& outcome = stepper.outcome(1)[0];
  EXPECT_EQ(outcome.finish, FinishReason::kStop);
  EXPECT_EQ(outcome.tokens.back(), request.decoding.stop_tokens[0]);
  EXPECT_LE(outcome.tokens.size(), 5u);
  EXPECT_EQ(static_cast<std::size_t>(stepper.steps_run()), outcome.tokens.size() + 1);  // one wasted row
}

TEST(Scheduler, ChoicesShareThePromptAndComputeItOnce) {
  for (const bool prefix_cache : {true, false}) {
    StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
    options.limits.prefix_cache = prefix_cache;
    Stepper stepper(options);
    stepper.add(request_of(1, prompt_of(43), 1, 4));
    ASSERT_TRUE(stepper.finish(2));
    // 40 positions are whole pages; the other three choices compute the last three tokens each.
    EXPECT_EQ(stepper.rows_run(), 43 + 3 * 3) << prefix_cache;
    EXPECT_EQ(stepper.scheduler().tables().pool(0).cached() > 0, prefix_cache);
  }
}

TEST(Scheduler, APrefixSeenBeforeIsNotComputedAgain) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
  Stepper stepper(options);
  stepper.add(request_of(1, prompt_of(43), 6));
  ASSERT_TRUE(stepper.finish(2));
  // The answer of the first turn is part of the second turn's prompt.
  std::vector<std::int32_t> second = prompt_of(43);
  for (const std::int32_t token : stepper.outcome(1)[0].tokens) second.push_back(token);
  const Request request = request_of(2, second, 6);
  stepper.add(request);
  ASSERT_TRUE(stepper.finish(2));
  EXPECT_EQ(stepper.cached_tokens(1), 0);
  EXPECT_EQ(stepper.cached_tokens(2), 48);  // 43 + 5 tokens are in KV
  expect_as_alone(stepper, request, options);
}

TEST(Scheduler, APrefixIsNeverTheWholePrompt) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
  Stepper stepper(options);
  for (const RequestId id : {1, 2}) {
    stepper.add(request_of(id, prompt_of(40), 1));
    ASSERT_TRUE(stepper.finish(1));
  }
  EXPECT_EQ(stepper.cached_tokens(2), 36);
}

TEST(Scheduler, PrefixesAreNotSharedBetweenSalts) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
  Stepper stepper(options);
  for (const RequestId id : {1, 2, 3}) {
    Request request = request_of(id, prompt_of(40), 1);
    request.cache_salt = id == 2 ? "b" : "a";
    stepper.add(request);
    ASSERT_TRUE(stepper.finish(1));
  }
  EXPECT_EQ(stepper.cached_tokens(2), 0);
  EXPECT_EQ(stepper.cached_tokens(3), 36);
}

TEST(Scheduler, WithoutAPrefixCacheRequestsShareNothingEvenWhileBothRun) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
  options.limits.prefix_cache = false;
  Stepper stepper(options);
  for (const RequestId id : {1, 2}) stepper.add(request_of(id, prompt_of(41), 8, 2));
  ASSERT_TRUE(stepper.finish(2));
  EXPECT_EQ(stepper.scheduler().counters().prompt_tokens_cached, 0u);
}

TEST(Scheduler, RequestsThatArriveTogetherComputeACommonPromptOnce) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 60}});
  Stepper stepper(options);
  stepper.add(request_of(1, prompt_of(41), 3));
  stepper.add(request_of(2, prompt_of(41), 3));
  ASSERT_TRUE(stepper.plan());
  EXPECT_EQ(stepper.last_planned().rows, 41 + 1);
  ASSERT_TRUE(stepper.finish(2));
  EXPECT_EQ(stepper.outcome(1)[0].tokens, stepper.outcome(2)[0].tokens);
  expect_as_alone(stepper, request_of(2, prompt_of(41), 3), options);
}

// A prefix counts only where the windowed set still has the positions before its end that the next row sees.
TEST(Scheduler, AWindowedSetWithoutTheEndOfAPrefixShortensTheHit) {
  StepperOptions options = options_of(4, {{0, 200}, {5, 8}}, 8);
  Stepper stepper(options);
  stepper.add(request_of(1, prompt_of(40), 1));
  ASSERT_TRUE(stepper.finish(1));
  // Another sequence takes some of the eight windowed pages, the oldest first.
  stepper.add(request_of(2, prompt_of(9, 60), 1));
  ASSERT_TRUE(stepper.finish(1));
  const Request longer = request_of(3, prompt_of(48), 2);
  const Request shorter = request_of(4, prompt_of(14), 2);
  for (const Request& request : {longer, shorter}) {
    stepper.add(request);
    ASSERT_TRUE(stepper.finish(1));
    expect_as_alone(stepper, request, options);
  }
  EXPECT_EQ(stepper.cached_tokens(3), 40);  // the end of the prefix was the youngest
  EXPECT_EQ(stepper.cached_tokens(4), 0);   // all 12 positions are cached in the full set, and gone in the windowed one
}

TEST(Scheduler, TheOldestIsNeverPreemptedAndNobodyOftenUnderPressure) {
  StepperOptions options = options_of(1, {{0, 64}, {5, 64}}, 32);
  options.model.positions_max = 60;
  options.limits.sequences_max = 8;
  options.limits.prefix_cache = false;
  Stepper stepper(options);
  for (RequestId id = 1; id <= 12; ++id) stepper.add(request_of(id, prompt_of(3, static_cast<int>(id)), 50));
  std::map<RequestId, int> preemptions;
  while (!stepper.scheduler().idle()) {
    while (stepper.steps_in_flight() < 2 && stepper.plan()) {
      for (const StepPart& part : stepper.last_planned().parts) {
        preemptions[part.sequence->owner->request.id] = part.sequence->preemptions;
      }
    }
    stepper.commit();
  }
  EXPECT_EQ(preemptions[1], 0);
  EXPECT_GT(stepper.scheduler().counters().preemptions, 0u);
  for (const auto& [id, count] : preemptions) EXPECT_LE(count, 8) << "request " << id;
  for (RequestId id = 1; id <= 12; ++id) {
    expect_as_alone(stepper, request_of(id, prompt_of(3, static_cast<int>(id)), 50), options);
  }
}

TEST(Scheduler, AnUrgentRequestTakesThePlaceOfTheLeastUrgent) {
  StepperOptions options = options_of(4, {{0, 64}, {5, 32}});
  options.limits.sequences_max = 1;
  Stepper stepper(options);
  Request slow = request_of(1, prompt_of(5), 30), urgent = request_of(2, prompt_of(6), 3);
  slow.priority = 1;
  stepper.add(slow);
  ASSERT_TRUE(stepper.plan());
  stepper.commit();
  stepper.add(urgent);
  int steps = 0;
  for (; !stepper.outcome(2)[0].finish; ++steps) {
    (void)stepper.plan();
    stepper.commit();
  }
  EXPECT_LE(steps, 5);
  ASSERT_TRUE(stepper.finish(1));
  expect_as_alone(stepper, slow, options);
  expect_as_alone(stepper, urgent, options);
}

TEST(Scheduler, EqualPrioritiesFinishPromptsInOrderOfArrival) {
  StepperOptions options = options_of(4, {{0, 400}, {5, 60}}, 8);
  Stepper stepper(options);
  for (RequestId id = 1; id <= 4; ++id) stepper.add(request_of(id, prompt_of(30, static_cast<int>(id)), 1));
  std::vector<RequestId> order;
  while (!stepper.scheduler().idle()) {
    if (stepper.plan()) {
      for (const StepPart& part : stepper.last_planned().parts) {
        if (part.logit_rows > 0) order.push_back(part.sequence->owner->request.id);
      }
    }
    stepper.commit();
  }
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3, 4));
}

TEST(Scheduler, ACancelledRequestEndsAtOnceAndItsPagesReturnWithTheLastStepThatNamesThem) {
  Stepper stepper(options_of(4, {{0, 50}, {5, 20}}));
  stepper.add(request_of(1, prompt_of(20), 10, 2));
  ASSERT_TRUE(stepper.plan());
  ASSERT_TRUE(stepper.plan());
  stepper.cancel(1);
  for (const Outcome& outcome : stepper.outcome(1)) EXPECT_EQ(outcome.finish, FinishReason::kCancelled);
  EXPECT_EQ(stepper.scheduler().tables().pool(0).live(), 0);
  EXPECT_GT(stepper.scheduler().tables().pool(0).fenced(), 0);
  stepper.commit();
  stepper.commit();
  expect_all_pages_back(stepper, stepper.scheduler());
  EXPECT_TRUE(stepper.outcome(1)[0].tokens.empty());
}

TEST(Scheduler, NoStepIsSpentOnWhatIsPastItsDeadline) {
  Stepper stepper(options_of(4, {{0, 50}, {5, 20}}));
  Request request = request_of(1, prompt_of(20), 10);
  request.deadline = Time{} + std::chrono::seconds(5);
  stepper.add(request);
  EXPECT_EQ(stepper.scheduler().next_deadline(), request.deadline);
  ASSERT_TRUE(stepper.plan(Time{} + std::chrono::seconds(4)));
  stepper.commit();
  EXPECT_FALSE(stepper.plan(Time{} + std::chrono::seconds(5)));
  EXPECT_EQ(stepper.outcome(1)[0].finish, FinishReason::kTimeout);
  EXPECT_EQ(stepper.outcome(1)[0].tokens.size(), 1u);
  EXPECT_TRUE(stepper.scheduler().idle());
}

TEST(Scheduler, LogitsThatAreNotNumbersFailThatSequenceAloneAndAreNeverShared) {
  StepperOptions options = options_of(4, {{0, 100}, {5, 40}});
  options.model.poison = 13;
  Stepper stepper(options);
  std::vector<std::int32_t> bad = prompt_of(20);
  ASSERT_EQ(std::ranges::count(bad, 13), 0);
  bad[6] = 13;
  Request good = request_of(2, prompt_of(20), 12);
  good.decoding.logit_bias = {{13, -100.0f}};
  stepper.add(request_of(1, bad, 12, 2));
  stepper.add(good);
  ASSERT_TRUE(stepper.finish(2));
  for (const Outcome& outcome : stepper.outcome(1)) {
    EXPECT_EQ(outcome.finish, FinishReason::kFailed);
    EXPECT_TRUE(outcome.tokens.empty());
  }
  expect_as_alone(stepper, good, options);
  const std::uint64_t cached = stepper.scheduler().counters().prompt_tokens_cached;
  stepper.add(request_of(3, bad, 1));
  ASSERT_TRUE(stepper.finish(2));
  EXPECT_EQ(stepper.scheduler().counters().prompt_tokens_cached, cached);
  EXPECT_EQ(stepper.scheduler().counters().requests_finished[static_cast<std::size_t>(FinishReason::kFailed)], 2u);
}

TEST(Scheduler, DraftsBringSeveralTokensAStepAndChangeNone) {
  StepperOptions options = options_of(4, {{0, 100}, {5, 40}});
  options.decoders = draft_decoders(options.model, 4, 1.0);
  Stepper stepper(options);
  const Request request = request_of(1, prompt_of(20), 40);
  stepper.add(request);
  ASSERT_TRUE(stepper.finish(1));
  expect_as_alone(stepper, request, options);
  EXPECT_LT(stepper.steps_run(), 25);
}

TEST(Scheduler, UnseededRequestsDrawDifferentNumbersAndSeededOnesTheSame) {
  Stepper stepper(options_of(4, {{0, 100}, {5, 40}}));
  std::vector<std::uint64_t> seeds;
  for (RequestId id = 1; id <= 4; ++id) {
    Request request = request_of(id, prompt_of(4), 1, id == 4 ? 2 : 1);
    if (id >= 3) request.decoding.seed = 77;
    stepper.add(request);
    ASSERT_TRUE(stepper.plan());
    for (const StepPart& part : stepper.last_planned().parts) {
      std::vector<ops::LogitAdjustment> adjustments;
      seeds.push_back(part.sequence->sampling->row(0, adjustments).seed);
    }
    stepper.commit();
  }
  ASSERT_EQ(seeds.size(), 5u);
  EXPECT_NE(seeds[0], seeds[1]);
  EXPECT_EQ(seeds[2], 77u);
  EXPECT_EQ(seeds[3], 77u);
  EXPECT_EQ(seeds[4], 78u);  // the second choice
}

}  // namespace
}  // namespace rose
