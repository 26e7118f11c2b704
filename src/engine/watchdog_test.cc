#include "engine/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <future>

#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/testing/fake_model.h"

namespace rose {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using namespace std::chrono_literals;

Time at(double seconds) {
  return Time{} + 1000h + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// What looks once a second, from second 0, say of `ranks(second)`: the first report and when, or "".
struct Seen {
  std::string report;
  int second = -1;
};
Seen look_for(int seconds, double timeout_s, const std::function<std::vector<RankProgress>(int)>& ranks) {
  StuckSteps steps(timeout_s);
  for (int second = 0; second < seconds; ++second) {
    if (std::string report = steps.look(at(second), ranks(second)); !report.empty()) return {std::move(report), second};
  }
  return {};
}

TEST(StuckSteps, AStepIsReportedWhenItHasBeenSeenInFlightForTheTimeout) {
  const Seen seen = look_for(1000, 300, [](int second) {
    return std::vector<RankProgress>{{.steps_ended = 41,
                                      .in_flight = second >= 100,  // first seen then
                                      .rows = 7,
                                      .place = {.layer = 3, .rows = 7, .operation = "experts"}}};
  });
  EXPECT_EQ(seen.second, 400);
  EXPECT_EQ(seen.report, "watchdog: a step does not end; rank 0: step 42 of 7 rows, for 300.0 s: layer 3, experts");
}

TEST(StuckSteps, AnEngineWithoutAStepInFlightIsNeverLate) {
  EXPECT_EQ(look_for(5000, 300, [](int) { return std::vector<RankProgress>{{.steps_ended = 41}}; }).second, -1);
}

TEST(StuckSteps, StepsThatEndAreLeftAloneHoweverSlowTheyAre) {
  // Always one in flight, each for 299 seconds: with overlap there is no moment without one.
  const auto slow = [](int second) {
    return std::vector<RankProgress>{{.steps_ended = static_cast<std::uint64_t>(second / 299), .in_flight = true}};
  };
  EXPECT_EQ(look_for(5000, 300, slow).second, -1);
  EXPECT_EQ(look_for(5000, 298, slow).second, 298) << "one second shorter, and the first of them is late";
}

TEST(StuckSteps, AProcessThatWasStoppedIsNotAStepThatDoesNotEnd) {
  StuckSteps steps(300);
  const std::vector<RankProgress> ranks = {{.in_flight = true}};
  EXPECT_EQ(steps.look(at(0), ranks), "");
  EXPECT_EQ(steps.look(at(100'000), ranks), "") << "stopped for a day, then continued";
  for (int second = 1; second < 298; ++second) ASSERT_EQ(steps.look(at(100'000 + second), ranks), "") << second;
  EXPECT_NE(steps.look(at(100'298), ranks), "") << "the jump counted for two looks";
}

TEST(StuckSteps, TheReportTellsWhoIsStuckFromWhoWaits) {
  const auto report = [](RankProgress rank) {
    rank.in_flight = true;
    return look_for(30, 20, [&](int) { return std::vector<RankProgress>{rank, {.in_flight = false}}; }).report;
  };
  EXPECT_THAT(report({.place = {.operation = "sampling"}}), HasSubstr("outside of the layers, sampling"));
  EXPECT_THAT(report({.has_run = true, .collecting = true}), HasSubstr("has run, and waits for the engine's loop"));
  EXPECT_THAT(report({.on_gpu = true, .has_run = true}), HasSubstr("has run, and waits for the engine's loop"));
  EXPECT_THAT(report({.on_gpu = true, .has_run = true, .collecting = true, .graph_rows = 8}),
              HasSubstr("the graph of 8 rows is queued, but the GPU does not end it"));
  EXPECT_THAT(report({}), Not(HasSubstr("rank 1"))) << "which has no step in flight";
}

// Says when the request has ended.
class End : public RequestSink {
 public:
  explicit End(std::function<void()> at_token = {}) : at_token_(std::move(at_token)) {}
  void deliver(std::span<const TokenEvent> events) override {
    if (at_token_) at_token_();
    for (const TokenEvent& e : events) {
      if (e.finish) end_.set_value(*e.finish);
    }
  }
  FinishReason wait() {
    auto end = end_.get_future();
    if (end.wait_for(60s) != std::future_status::ready) throw std::runtime_error("no end within a minute");
    return end.get();
  }

 private:
  std::function<void()> at_token_;
  std::promise<FinishReason> end_;
};

Request request_of(const std::shared_ptr<End>& end, int max_tokens) {
  Request request{.id = 1, .prompt = {1, 2, 3, 4, 5}, .sink = end};
  request.decoding.temperature = 0;
  request.decoding.max_tokens = max_tokens;
  return request;
}

// An engine with a rank for each of `forwards`, which are called on the ranks' threads at the start of each step.
std::unique_ptr<TokenEngine> engine_of(const std::vector<std::function<void()>>& forwards, double watchdog_s,
                                       std::function<void(const std::string&)> on_stuck = {}) {
  spdlog::set_level(spdlog::level::warn);
  std::vector<std::unique_ptr<Model>> models;
  const int ranks = static_cast<int>(forwards.size());
  for (int rank = 0; rank < ranks; ++rank) {
    models.push_back(testing::make_fake_model(
        {.positions_max = 64, .before_forward = forwards[static_cast<std::size_t>(rank)]}, rank, ranks));
  }
  EngineOptions options;
  options.page_size = 4;
  options.rows_max = 64;
  options.sequences_max = 4;
  options.pages = {100, 40};
  options.kv_dtype = DType::kI32;
  options.watchdog_s = watchdog_s;
  options.on_stuck = std::move(on_stuck);
  return make_engine(std::move(models), make_loopback_communicators(ranks), options);
}

// A report, once.
struct Report {
  std::promise<std::string> text;
  std::string wait() {
    auto future = text.get_future();
    return future.wait_for(60s) == std::future_status::ready ? future.get() : "none within a minute";
  }
};

TEST(Watchdog, AStuckRankIsNamedWithItsStepAndPlaceAndTheOthersAsWaiting) {
  Report report;
  std::atomic<bool> hold = true;
  std::atomic<int> steps = 0;
  const auto stuck = [&] {
    if (++steps != 3) return;
    current_place().set({.layer = 2, .rows = 1, .operation = "attention"});
    while (hold) std::this_thread::sleep_for(1ms);
  };
  const auto end = std::make_shared<End>();
  auto engine = engine_of({[] {}, stuck}, 0.2, [&](const std::string& text) { report.text.set_value(text); });
  const Time begin = Clock::now();
  ASSERT_TRUE(engine->submit(request_of(end, 8)));
  const std::string text = report.wait();
  EXPECT_GE(seconds_between(begin, Clock::now()), 0.2);
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 1: step 3 of 1 row, for 0.2 s: layer 2, attention"),
                    HasSubstr("rank 0: step 3 of 1 row, for 0.2 s: outside of the layers, waiting for the other")));
  hold = false;
  EXPECT_EQ(end->wait(), FinishReason::kLength);
}

TEST(Watchdog, ALoopThatDoesNotCollectIsReportedToo) {
  Report report;
  std::atomic<bool> hold = true;
  const auto end = std::make_shared<End>([&] {
    while (hold) std::this_thread::sleep_for(1ms);
  });
  auto engine = engine_of({[] {}}, 0.2, [&](const std::string& text) { report.text.set_value(text); });
  ASSERT_TRUE(engine->submit(request_of(end, 8)));
  EXPECT_THAT(report.wait(), HasSubstr("has run, and waits for the engine's loop"));
  hold = false;
  EXPECT_EQ(end->wait(), FinishReason::kLength);
}

TEST(Watchdog, AnEngineThatIsSlowOrIdleOrDrainedIsLeftAlone) {
  std::atomic<int> reports = 0;
  const auto end = std::make_shared<End>();
  auto engine = engine_of({[] { std::this_thread::sleep_for(60ms); }}, 0.6, [&](const std::string&) { ++reports; });
  ASSERT_TRUE(engine->submit(request_of(end, 30)));  // 1.8 s, three times the timeout, of steps in flight all the time
  EXPECT_EQ(end->wait(), FinishReason::kLength);
  std::this_thread::sleep_for(900ms);  // idle
  engine->stop(Clock::now() + 10s);
  std::this_thread::sleep_for(900ms);  // drained
  EXPECT_EQ(reports, 0);
}

TEST(WatchdogDeathTest, AStuckStepEndsTheProcessWithItsExitCodeAndTheReportInTheLog) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("log", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
    std::promise<void> running;
    const auto stuck = [&] {
      current_place().set({.layer = 5, .rows = 5, .operation = "experts"});
      running.set_value();
      for (;;) std::this_thread::sleep_for(1s);
    };
    auto engine = engine_of({stuck}, 0.2);
    (void)engine->submit(request_of(std::make_shared<End>(), 8));
    running.get_future().wait();
    engine->stop(Clock::now());  // waits for the step: draining does not stop the watchdog
  };
  EXPECT_EXIT(
      serve(), ::testing::ExitedWithCode(6),
      "critical.*rank 0: step 1 of 5 rows, for 0.[0-9] s: layer 5, experts; ending the process with exit code 6");
}

class BlockedSink : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg&) override {
    for (;;) std::this_thread::sleep_for(1s);
  }
  void flush_() override {}
};

TEST(WatchdogDeathTest, ALogThatNobodyReadsDoesNotKeepTheProcessAlive) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("log", std::make_shared<BlockedSink>()));
    end_stuck_process("a report");
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(kExitWatchdog), "");
}

}  // namespace
}  // namespace rose
