#include "engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/result.h"
#include "engine/page_tables.h"
#include "engine/request_check.h"

namespace rose {
namespace {

// gpt-oss-20b: 12 layers with a window of 128, 12 without; 8 KV heads of 64.
std::vector<KvSetSpec> gpt_oss_sets() {
  std::vector<KvSetSpec> sets = {{.window = 128, .layers = {}}, {.window = 0, .layers = {}}};
  for (int layer = 0; layer < 24; ++layer) sets[static_cast<std::size_t>(layer % 2)].layers.push_back(layer);
  return sets;
}
const KvShape kShape{.page_size = 32, .kv_heads = 8, .head_dim = 64, .dtype = DType::kBf16};

constexpr std::size_t kGiB = std::size_t{1} << 30;

TEST(PlanKv, StaysWithinTheBudgetAndHoldsTheContext) {
  for (const std::size_t budget : {kGiB / 4, kGiB, 8 * kGiB, 64 * kGiB}) {
    EngineOptions options;
    options.kv_bytes = budget;
    const KvPlan plan = plan_kv(gpt_oss_sets(), kShape, options, 131'072, 0);
    EXPECT_LE(plan.bytes, budget);
    EXPECT_GE(plan.pages[1] * 32, plan.context_max);
    EXPECT_GE(plan.pages[0], windowed_pages_max(128, 1, 32));
  }
}

TEST(PlanKv, ShortensTheContextToTheBudgetOnlyWhereNoneWasAskedFor) {
  EngineOptions options;
  options.kv_bytes = kGiB;  // 12 layers x 2 KiB a position: a context of 131,072 takes 3 GiB
  const KvPlan plan = plan_kv(gpt_oss_sets(), kShape, options, 131'072, 0);
  EXPECT_LT(plan.context_max, 131'072);
  EXPECT_GT(plan.context_max, 16'384);
  options.context_max = 131'072;
  try {
    (void)plan_kv(gpt_oss_sets(), kShape, options, 131'072, 0);
    FAIL() << "a context that does not fit was accepted";
  } catch (const StartError& error) {
    EXPECT_EQ(error.exit_code(), kExitDoesNotFit);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("131072 tokens needs"));
  }
}

TEST(PlanKv, TakesNoMoreThanTheSequencesCanUse) {
  EngineOptions options;
  options.kv_bytes = 64 * kGiB;
  options.context_max = 1024;
  options.sequences_max = 2;
  EXPECT_EQ(plan_kv(gpt_oss_sets(), kShape, options, 131'072, 0).pages[1], 2 * 32);
}

TEST(PlanKv, WithoutABudgetTakesAtMostHalfOfTheFreeMemory) {
  EXPECT_LE(plan_kv(gpt_oss_sets(), kShape, {}, 131'072, 4 * kGiB).bytes, 2 * kGiB);
}

TEST(PlanKv, OptionsOutOfRangeAreUsageErrors) {
  const auto exit_code = [](auto change) {
    EngineOptions options;
    change(options);
    try {
      (void)plan_kv(gpt_oss_sets(), kShape, options, 131'072, kGiB);
    } catch (const StartError& error) {
      return error.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(exit_code([](EngineOptions&) {}), 0);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.sequences_max = 0; }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.rows_max = -1; }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.page_size = 4096; }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.context_max = 200'000; }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.watchdog_s = 86'400; }), 0);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.watchdog_s = -1; }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.watchdog_s = std::nan(""); }), kExitUsage);
  EXPECT_EQ(exit_code([](EngineOptions& o) { o.kv_bytes = 1; }), kExitDoesNotFit);
}

class Nobody : public RequestSink {
  void deliver(std::span<const TokenEvent>) override {}
};

TEST(CheckRequest, EveryFieldHasItsRange) {
  const EngineLimits limits{.context_max = 100, .vocabulary = 50, .sequences_max = 4, .requests_waiting_max = 4};
  const auto status = [&](auto change) {
    Request request{.id = 1, .prompt = {1, 2, 3}, .sink = std::make_shared<Nobody>()};
    request.decoding.max_tokens = 5;
    change(request);
    const auto result = check_request(request, limits);
    return result ? 0 : result.error().status;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(status([](Request&) {}), 0);
  const std::vector<std::function<void(Request&)>> wrong = {
      [](Request& r) { r.prompt.clear(); },
      [](Request& r) { r.prompt.assign(100, 1); },
      [](Request& r) { r.prompt[1] = -1; },
      [](Request& r) { r.prompt[1] = 50; },
      [](Request& r) { r.n = 0; },
      [](Request& r) { r.n = 1 << 30; },
      [](Request& r) { r.cache_salt.assign(129, 'x'); },
      [](Request& r) { r.masks.resize(2); },
      [](Request& r) { r.decoding.max_tokens = 0; },
      [](Request& r) { r.decoding.min_tokens = 6; },
      [](Request& r) { r.decoding.min_tokens = -1; },
      [](Request& r) { r.decoding.temperature = -0.1f; },
      [=](Request& r) { r.decoding.temperature = kNan; },
      [=](Request& r) { r.decoding.temperature = kInf; },
      [](Request& r) { r.decoding.top_p = 0; },
      [=](Request& r) { r.decoding.top_p = kNan; },
      [](Request& r) { r.decoding.min_p = 1.1f; },
      [](Request& r) { r.decoding.top_k = -1; },
      [](Request& r) { r.decoding.presence_penalty = 2.1f; },
      [](Request& r) { r.decoding.frequency_penalty = -2.1f; },
      [](Request& r) { r.decoding.repetition_penalty = 0; },
      [](Request& r) { r.decoding.top_logprobs = 21; },
      [](Request& r) { r.decoding.top_logprobs = -2; },
      [](Request& r) { r.decoding.stop_tokens = {50}; },
      [](Request& r) { r.decoding.stop_tokens = {-1}; },
      [](Request& r) {
        r.decoding.logit_bias = {{50, 1.0f}};
      },
      [=](Request& r) {
        r.decoding.logit_bias = {{5, kNan}};
      },
      [](Request& r) {
        r.decoding.logit_bias = {{5, 100.5f}};
      },
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) EXPECT_EQ(status(wrong[i]), 400) << "case " << i;
}

}  // namespace
}  // namespace rose
