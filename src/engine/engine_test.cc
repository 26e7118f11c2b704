#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/log.h"
#include "engine/testing/fake_model.h"
#include "engine/testing/stepper.h"

namespace rose {
namespace {

using testing::FakeModelOptions;
using testing::make_fake_model;

using namespace std::chrono_literals;

class Answer : public RequestSink {
 public:
  explicit Answer(int n = 1) : tokens(static_cast<std::size_t>(n)), ends(static_cast<std::size_t>(n)), left_(n) {}

  void started(int cached, const RequestTimes& times) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(cached_tokens) << "started twice";
    EXPECT_GE(times.queued_s, 0);
    EXPECT_GE(times.prefill_s, 0);
    cached_tokens = cached;
  }

  void deliver(std::span<const TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(events.empty());
    for (const TokenEvent& e : events) {
      const auto choice = static_cast<std::size_t>(e.choice);
      EXPECT_FALSE(ends.at(choice)) << "an event after the end";
      EXPECT_TRUE(e.token < 0 || cached_tokens) << "a token before the start";
      if (e.token >= 0) tokens[choice].push_back(e.token);
      all.push_back(e);
      ends[choice] = e.finish;
      if (e.finish) --left_;
    }
    changed_.notify_all();
  }

  // Until all choices have ended; the wait is bounded so that a hang is a failure.
  void wait() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 60s, [this] { return left_ == 0; })) << "no end within a minute";
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 60s, [&] { return tokens[0].size() >= count || left_ == 0; }));
  }

  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::optional<FinishReason>> ends;
  std::vector<TokenEvent> all;
  std::optional<int> cached_tokens;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

struct Setting {
  std::string name;
  int page_size = 4;
  int rows_max = 64;
  int sequences_max = 6;
  bool overlap = true;
  bool prefix_cache = true;
  int ranks = 1;
  std::vector<int> pages = {100, 40};
  int drafts = 0;
};

EngineOptions options_of(const Setting& setting) {
  EngineOptions options;
  options.page_size = setting.page_size;
  options.rows_max = setting.rows_max;
  options.sequences_max = setting.sequences_max;
  options.overlap = setting.overlap;
  options.prefix_cache = setting.prefix_cache;
  options.pages = setting.pages;
  options.kv_dtype = DType::kI32;
  options.random_seed = 5;
  return options;
}

std::unique_ptr<TokenEngine> engine_of(const EngineOptions& options, const FakeModelOptions& model = {},
                                       int ranks = 1) {
  spdlog::set_level(spdlog::level::warn);
  std::vector<std::unique_ptr<Model>> models;
  for (int rank = 0; rank < ranks; ++rank) models.push_back(make_fake_model(model, rank, ranks));
  std::vector<std::unique_ptr<Communicator>> communicators;
  if (ranks == 1) {
    communicators.push_back(make_solo_communicator());
  } else {
    communicators = make_loopback_communicators(ranks);
  }
  return make_engine(std::move(models), std::move(communicators), options);
}

FakeModelOptions small_model() { return {.positions_max = 64}; }

Request request_of(RequestId id, int length, int max_tokens, std::shared_ptr<Answer> answer, int first = 1) {
  Request request{.id = id, .n = static_cast<int>(answer->tokens.size())};
  for (int i = 0; i < length; ++i) request.prompt.push_back((first + i * 7) % 97);
  request.decoding.temperature = 0;
  request.decoding.max_tokens = max_tokens;
  request.sink = std::move(answer);
  return request;
}

void expect_as_alone(const Request& request, const Answer& answer, const FakeModelOptions& model) {
  const testing::Outcome expected = testing::expected_outcome(request, {.model = model});
  for (std::size_t choice = 0; choice < answer.tokens.size(); ++choice) {
    EXPECT_EQ(answer.tokens[choice], expected.tokens) << "request " << request.id;
    EXPECT_EQ(answer.ends[choice], expected.finish) << "request " << request.id;
  }
}

class EngineMatrix : public ::testing::TestWithParam<Setting> {};

TEST_P(EngineMatrix, EveryAnswerIsWhatTheModelPredictsForTheRequestAlone) {
  const Setting& setting = GetParam();
  const FakeModelOptions model = small_model();
  EngineOptions options = options_of(setting);
  if (setting.drafts > 0) options.decoders = testing::draft_decoders(model, setting.drafts, 0.7);
  auto engine = engine_of(options, model, setting.ranks);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 24; ++i) {
    answers.push_back(std::make_shared<Answer>(1 + i % 3));
    requests.push_back(
        request_of(static_cast<RequestId>(i), 1 + (i * 11) % 40, 1 + (i * 5) % 20, answers.back(), i % 4 == 0 ? 1 : i));
    requests.back().decoding.stop_tokens = {3, 50, 77};
    if (i % 5 == 1) requests.back().decoding.presence_penalty = 1.5f;
    if (i % 5 == 2) requests.back().decoding.min_tokens = std::min(4, requests.back().decoding.max_tokens);
    requests.back().priority = i % 2;
    ASSERT_TRUE(engine->submit(requests.back()));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(answers[i]->wait());
    expect_as_alone(requests[i], *answers[i], model);
  }
  engine->stop(Clock::now() + 10s);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.pages_live, (std::vector<int>{0, 0}));
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0);
  EXPECT_EQ(stats.requests_finished[0] + stats.requests_finished[1], 24u);
}

INSTANTIATE_TEST_SUITE_P(Settings, EngineMatrix,
                         ::testing::Values(Setting{"defaults"},
                                           Setting{"page_of_1", 1, 64, 6, true, true, 1, {200, 90}},
                                           Setting{"page_of_32", 32, 64, 6, true, true, 1, {20, 20}},
                                           Setting{"chunk_of_7", 4, 7}, Setting{"no_overlap", 4, 64, 6, false},
                                           Setting{"no_prefix_cache", 4, 64, 6, true, false},
                                           Setting{"smallest_pool", 4, 64, 6, true, true, 1, {16, 2}},
                                           Setting{"small_pool_no_overlap", 4, 16, 6, false, true, 1, {20, 8}},
                                           Setting{"pool_of_3_pages", 32, 64, 6, true, true, 1, {3, 3}},
                                           Setting{"two_ranks", 4, 16, 6, true, true, 2},
                                           Setting{"two_ranks_small_pool", 4, 16, 6, true, true, 2, {20, 6}},
                                           Setting{"drafts", 4, 64, 6, true, true, 1, {100, 40}, 3},
                                           Setting{"drafts_two_ranks", 4, 16, 6, true, true, 2, {30, 12}, 3}),
                         [](const auto& param) { return param.param.name; });

TEST(Engine, SampledTokensDependOnTheRequestAloneNotOnWhatRunsBesideIt) {
  const FakeModelOptions model = small_model();
  const auto run = [&](const Setting& setting, bool together) {
    auto engine = engine_of(options_of(setting), model, setting.ranks);
    std::vector<std::shared_ptr<Answer>> answers;
    for (int i = 0; i < 8; ++i) {
      answers.push_back(std::make_shared<Answer>(1 + i % 2));
      Request request = request_of(static_cast<RequestId>(i), 3 + i, 25, answers.back(), i);
      request.decoding.temperature = 2;
      if (i % 2 == 0) request.decoding.seed = 40 + i;
      EXPECT_TRUE(engine->submit(request));
      if (!together) answers.back()->wait();
    }
    std::vector<std::vector<std::int32_t>> tokens;
    for (const auto& answer : answers) {
      answer->wait();
      tokens.insert(tokens.end(), answer->tokens.begin(), answer->tokens.end());
    }
    return tokens;
  };
  const auto alone = run({"alone"}, false);
  EXPECT_EQ(run({"together"}, true), alone);
  EXPECT_EQ(run({"tight", 4, 7, 6, true, true, 1, {18, 4}}, true), alone);
  EXPECT_EQ(run({"ranks", 1, 16, 6, true, false, 2, {80, 40}}, true), alone);
  std::set<std::vector<std::int32_t>> distinct(alone.begin(), alone.end());
  EXPECT_EQ(distinct.size(), alone.size()) << "choices and unseeded requests draw their own numbers";
}

TEST(Engine, ACancelledRequestEndsAndItsPagesComeBack) {
  FakeModelOptions model{.positions_max = 100'000};
  model.before_forward = [] { std::this_thread::sleep_for(1ms); };
  EngineOptions options = options_of({"cancel", 32, 64});
  options.pages = {3200, 40};
  auto engine = engine_of(options, model);
  auto answer = std::make_shared<Answer>(2);
  ASSERT_TRUE(engine->submit(request_of(7, 10, 90'000, answer)));
  ASSERT_NO_FATAL_FAILURE(answer->wait_for_tokens(3));
  engine->cancel(7);
  engine->cancel(8);  // unknown
  ASSERT_NO_FATAL_FAILURE(answer->wait());
  EXPECT_EQ(answer->ends[0], FinishReason::kCancelled);
  EXPECT_EQ(answer->ends[1], FinishReason::kCancelled);
  engine->stop(Clock::now() + 10s);
  EXPECT_EQ(engine->stats().pages_live, (std::vector<int>{0, 0}));
  EXPECT_EQ(engine->stats().requests_finished[static_cast<int>(FinishReason::kCancelled)], 1u);
}

TEST(Engine, ADeadlineEndsARequestThatWouldRunOn) {
  FakeModelOptions model{.positions_max = 100'000};
  model.before_forward = [] { std::this_thread::sleep_for(1ms); };
  EngineOptions options = options_of({"deadline", 32, 64});
  options.pages = {3200, 40};
  auto engine = engine_of(options, model);
  auto answer = std::make_shared<Answer>();
  Request request = request_of(1, 10, 90'000, answer);
  request.deadline = Clock::now() + 100ms;
  ASSERT_TRUE(engine->submit(request));
  ASSERT_NO_FATAL_FAILURE(answer->wait());
  EXPECT_EQ(answer->ends[0], FinishReason::kTimeout);
  EXPECT_GE(Clock::now(), *request.deadline);
}

TEST(Engine, StopLetsRunningRequestsEndAndRefusesNewOnes) {
  FakeModelOptions model = small_model();
  model.before_forward = [] { std::this_thread::sleep_for(1ms); };
  auto engine = engine_of(options_of({"stop"}), model);
  auto answer = std::make_shared<Answer>();
  const Request request = request_of(1, 10, 40, answer);
  ASSERT_TRUE(engine->submit(request));
  engine->stop(Clock::now() + 60s);
  expect_as_alone(request, *answer, model);
  const auto refused = engine->submit(request_of(2, 10, 40, std::make_shared<Answer>()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 503);
  engine->stop(Clock::now());  // again: nothing happens
}

TEST(Engine, StopCancelsWhatIsLeftAtItsDeadline) {
  FakeModelOptions model{.positions_max = 100'000};
  model.before_forward = [] { std::this_thread::sleep_for(1ms); };
  EngineOptions options = options_of({"stop", 32, 64});
  options.pages = {3200, 40};
  auto engine = engine_of(options, model);
  auto answer = std::make_shared<Answer>();
  ASSERT_TRUE(engine->submit(request_of(1, 10, 90'000, answer)));
  ASSERT_NO_FATAL_FAILURE(answer->wait_for_tokens(1));
  engine->stop(Clock::now() + 20ms);
  EXPECT_EQ(answer->ends[0], FinishReason::kCancelled);
}

TEST(Engine, AFullQueueAnswers429AndAnIdInUse400) {
  FakeModelOptions model = small_model();
  std::atomic<bool> hold = true;
  model.before_forward = [&] {
    while (hold) std::this_thread::sleep_for(1ms);
  };
  EngineOptions options = options_of({"queue", 4, 64, 1});
  options.requests_waiting_max = 3;
  auto engine = engine_of(options, model);
  std::vector<std::shared_ptr<Answer>> answers;
  const auto submit = [&](RequestId id) {
    answers.push_back(std::make_shared<Answer>());
    const auto result = engine->submit(request_of(id, 4, 3, answers.back()));
    if (!result) answers.pop_back();
    return result ? 0 : result.error().status;
  };
  ASSERT_EQ(submit(0), 0);
  while (engine->stats().requests_running == 0) std::this_thread::sleep_for(1ms);
  for (RequestId id = 1; id <= 3; ++id) EXPECT_EQ(submit(id), 0) << "one runs, three may wait";
  EXPECT_EQ(engine->stats().requests_waiting, 3);
  EXPECT_EQ(submit(4), 429);
  hold = false;
  for (const auto& answer : answers) ASSERT_NO_FATAL_FAILURE(answer->wait());
  const RequestId used = 9;
  hold = true;
  ASSERT_EQ(submit(used), 0);
  EXPECT_EQ(submit(used), 400);
  hold = false;
  ASSERT_NO_FATAL_FAILURE(answers.back()->wait());
}

TEST(Engine, LogitsThatAreNotNumbersFailOneRequestAndLeaveItsNeighboursAlone) {
  FakeModelOptions model = small_model();
  model.poison = 13;
  auto engine = engine_of(options_of({"poison"}), model);
  std::vector<Request> good;
  std::vector<std::shared_ptr<Answer>> answers;
  auto failed = std::make_shared<Answer>(2);
  Request bad = request_of(100, 12, 20, failed);
  bad.prompt[6] = 13;
  for (int i = 0; i < 6; ++i) {
    answers.push_back(std::make_shared<Answer>());
    good.push_back(request_of(static_cast<RequestId>(i), 12, 20, answers.back()));
    good.back().decoding.logit_bias = {{13, -100.0f}};
    ASSERT_TRUE(engine->submit(good.back()));
    if (i == 2) {
      ASSERT_TRUE(engine->submit(bad));
    }
  }
  ASSERT_NO_FATAL_FAILURE(failed->wait());
  EXPECT_EQ(failed->ends[0], FinishReason::kFailed);
  EXPECT_TRUE(failed->tokens[0].empty());
  EXPECT_THAT(failed->all[0].error, ::testing::HasSubstr("not a number"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(answers[i]->wait());
    expect_as_alone(good[i], *answers[i], model);
  }
}

// Allows the tokens of one residue, and counts what it was told.
class ResidueMask : public TokenMask {
 public:
  explicit ResidueMask(int residue) : residue_(residue) {}
  bool mask(std::span<std::int32_t> bits) override {
    std::ranges::fill(bits, 0);
    for (int token = 0; token < 97; ++token) {
      if (token % 3 == (residue_ + static_cast<int>(taken.size())) % 3) bits[token / 32] |= 1 << (token % 32);
    }
    return true;
  }
  void advance(std::int32_t token) override { taken.push_back(token); }
  std::vector<std::int32_t> taken;

 private:
  int residue_;
};

TEST(Engine, AMaskSeesEveryTokenBeforeItDecidesOnTheNext) {
  auto engine = engine_of(options_of({"masks"}), small_model());
  auto answer = std::make_shared<Answer>(2), free = std::make_shared<Answer>();
  Request request = request_of(1, 12, 20, answer);
  const auto a = std::make_shared<ResidueMask>(0), b = std::make_shared<ResidueMask>(1);
  request.masks = {a, b};
  const Request unmasked = request_of(2, 9, 30, free);
  ASSERT_TRUE(engine->submit(request));
  ASSERT_TRUE(engine->submit(unmasked));
  ASSERT_NO_FATAL_FAILURE(answer->wait());
  ASSERT_NO_FATAL_FAILURE(free->wait());
  expect_as_alone(unmasked, *free, small_model());
  engine->stop(Clock::now());
  EXPECT_EQ(a->taken, answer->tokens[0]);
  EXPECT_EQ(b->taken, answer->tokens[1]);
  ASSERT_EQ(a->taken.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(answer->tokens[0][static_cast<std::size_t>(i)] % 3, i % 3);
    EXPECT_EQ(answer->tokens[1][static_cast<std::size_t>(i)] % 3, (i + 1) % 3);
  }
}

TEST(Engine, LogProbabilitiesAreThoseOfTheModelsLogits) {
  const FakeModelOptions model = small_model();
  auto engine = engine_of(options_of({"logprobs"}), model);
  auto answer = std::make_shared<Answer>();
  Request request = request_of(1, 12, 10, answer);
  request.decoding.top_logprobs = 3;
  ASSERT_TRUE(engine->submit(request));
  ASSERT_NO_FATAL_FAILURE(answer->wait());
  std::vector<std::int32_t> tokens = request.prompt;
  for (const TokenEvent& e : answer->all) {
    const std::vector<float> logits = testing::reference_logits(tokens, model);
    double total = 0;
    for (const float z : logits) total += std::exp(static_cast<double>(z));
    const auto logprob = [&](std::int32_t t) { return logits[static_cast<std::size_t>(t)] - std::log(total); };
    // Logits up to 8 and 97 terms: float sums are off by less than 97 ulps of 8.
    EXPECT_NEAR(e.logprob, logprob(e.token), 97 * 8 * 1.2e-7);
    ASSERT_EQ(e.top_logprobs.size(), 3u);
    EXPECT_EQ(e.top_logprobs[0].token, e.token);  // temperature 0
    for (const TokenLogprob& top : e.top_logprobs) EXPECT_NEAR(top.logprob, logprob(top.token), 97 * 8 * 1.2e-7);
    tokens.push_back(e.token);
  }
}

TEST(Engine, ReportsCachedPromptTokensAndCounts) {
  auto engine = engine_of(options_of({"cache"}), small_model());
  std::vector<std::shared_ptr<Answer>> answers;
  for (RequestId id = 0; id < 2; ++id) {
    answers.push_back(std::make_shared<Answer>());
    ASSERT_TRUE(engine->submit(request_of(id, 41, 5, answers.back())));
    ASSERT_NO_FATAL_FAILURE(answers.back()->wait());
  }
  EXPECT_EQ(answers[0]->cached_tokens, 0);
  EXPECT_EQ(answers[1]->cached_tokens, 40);
  engine->stop(Clock::now() + 10s);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.prompt_tokens, 82u);
  EXPECT_EQ(stats.prompt_tokens_cached, 40u);
  EXPECT_EQ(stats.generated_tokens, 10u);
  EXPECT_GE(stats.steps, 10u);
  EXPECT_GT(stats.pages_cached[0], 0);
}

TEST(Engine, TheHeartbeatTurnsWhileIdleAndShowsAStepThatHangs) {
  FakeModelOptions model = small_model();
  std::atomic<bool> hold = false;
  model.before_forward = [&] {
    while (hold) std::this_thread::sleep_for(1ms);
  };
  auto engine = engine_of(options_of({"heartbeat"}), model);
  std::this_thread::sleep_for(700ms);
  EXPECT_LT(engine->stats().heartbeat_age_s, 0.65);  // half a second a turn
  hold = true;
  auto answer = std::make_shared<Answer>();
  ASSERT_TRUE(engine->submit(request_of(1, 4, 4, answer)));
  std::this_thread::sleep_for(1s);
  EXPECT_GT(engine->stats().heartbeat_age_s, 0.9);
  hold = false;
  ASSERT_NO_FATAL_FAILURE(answer->wait());
}

TEST(Engine, AnIdMayBeUsedAgainAsSoonAsItsEndIsDelivered) {
  auto engine = engine_of(options_of({"reuse"}), small_model());
  for (int i = 0; i < 50; ++i) {
    auto answer = std::make_shared<Answer>();
    ASSERT_TRUE(engine->submit(request_of(1, 4, 2, answer)));
    ASSERT_NO_FATAL_FAILURE(answer->wait());
  }
}

TEST(Engine, ManyThreadsMaySubmitAndCancelAtOnce) {
  const FakeModelOptions model = small_model();
  auto engine = engine_of(options_of({"threads", 4, 16, 6, true, true, 1, {24, 8}}), model);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto id = static_cast<RequestId>(t * 1000 + i);
        auto answer = std::make_shared<Answer>(1 + i % 2);
        const Request request = request_of(id, 1 + (i * 7 + t) % 30, 1 + i, answer, t);
        ASSERT_TRUE(engine->submit(request));
        if (i % 3 == 0) engine->cancel(id);
        answer->wait();
        if (i % 3 != 0) expect_as_alone(request, *answer, model);
        (void)engine->stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->stop(Clock::now() + 10s);
  EXPECT_EQ(engine->stats().pages_live, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace rose
