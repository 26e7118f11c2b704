// The engine with the embedded model on a GPU: recorded graphs, their padding and the overlap of steps must not show in
// any bit of the logits.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/random.h"
#include "engine/engine.h"
#include "models/model.h"

namespace rose {
namespace {

// Tokens by choice; wait() returns when every choice has ended.
class Collector final : public RequestSink {
 public:
  explicit Collector(int choices) : tokens_(static_cast<std::size_t>(choices)), left_(choices) {}

  void deliver(std::span<const TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : events) {
      if (event.token >= 0) tokens_.at(static_cast<std::size_t>(event.choice)).push_back(event.token);
      if (!event.finish) continue;
      if (*event.finish != FinishReason::kLength) error_ = "ended otherwise than by length: " + event.error;
      if (--left_ == 0) ended_.notify_all();
    }
  }
  std::vector<std::vector<std::int32_t>> wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return left_ == 0; });
    EXPECT_EQ(error_, "");
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::vector<std::int32_t>> tokens_;
  int left_;
  std::string error_;
};

struct Outcome {
  std::vector<std::vector<std::int32_t>> tokens;
  std::uint64_t logits_hash = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Setting {
  int choices = 1;
  bool graphs = true;
  bool overlap = true;
  int rows_max = 256;
  int prompt_tokens = 300;  // more than the window, more than a step
  float temperature = 1;
  WeightFormat dense = WeightFormat::kBf16;
  DType kv = DType::kBf16;
};

Outcome run(const Setting& setting) {
  const Stream stream = Stream::cuda(0);
  const auto source = open_weights(std::string(ROSE_SOURCE_DIR) + "/models/rose-tiny");
  std::vector<std::unique_ptr<Model>> ranks;
  ranks.push_back(
      load_model(*source, {.plan = {}, .activations = DType::kBf16, .dense_format = setting.dense}, stream, {}));
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.push_back(make_solo_communicator());
  EngineOptions options;
  options.context_max = 1024;
  options.rows_max = setting.rows_max;
  options.kv_bytes = 256u << 20;
  options.kv_dtype = setting.kv;
  options.activations = DType::kBf16;
  options.overlap = setting.overlap;
  options.graphs = setting.graphs;
  options.hash_logits = true;
  const auto engine = make_engine(std::move(ranks), std::move(communicators), options, {stream});

  const auto sink = std::make_shared<Collector>(setting.choices);
  Request request{.id = 1, .n = setting.choices, .sink = sink};
  for (int i = 0; i < setting.prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(random_bits(7, static_cast<std::uint64_t>(i)) % 2000));
  }
  request.decoding.max_tokens = 150;
  request.decoding.ignore_stop = true;
  request.decoding.seed = 11;
  request.decoding.temperature = setting.temperature;
  EXPECT_TRUE(engine->submit(std::move(request)).ok());
  Outcome outcome{.tokens = sink->wait()};
  engine->stop(Clock::now());
  outcome.logits_hash = engine->stats().logits_hash;
  return outcome;
}

TEST(EngineGpu, GraphsGiveTheBitsOfSteps) {
  for (const int choices : {1, 5, 9, 17}) {  // graphs of 1, 5, 10 and 20 rows
    const Outcome eager = run({.choices = choices, .graphs = false});
    EXPECT_EQ(run({.choices = choices}), eager) << choices << " choices";
    EXPECT_EQ(eager.tokens.front().size(), 150u);
  }
}

// Two kernels in the place of one, and scratch that every matrix shares.
TEST(EngineGpu, GraphsGiveTheBitsOfStepsWithDenseMatricesInFp8) {
  for (const int choices : {1, 9}) {
    const Outcome eager = run({.choices = choices, .graphs = false, .dense = WeightFormat::kFp8});
    EXPECT_EQ(run({.choices = choices, .dense = WeightFormat::kFp8}), eager) << choices << " choices";
    EXPECT_NE(run({.choices = choices}), eager) << choices << " choices";
  }
}

TEST(EngineGpu, GraphsGiveTheBitsOfStepsWithKvInE4m3) {
  for (const int choices : {1, 9}) {
    const Outcome eager = run({.choices = choices, .graphs = false, .kv = DType::kF8E4M3});
    EXPECT_EQ(run({.choices = choices, .kv = DType::kF8E4M3}), eager) << choices << " choices";
    EXPECT_NE(run({.choices = choices}), eager) << choices << " choices";
  }
}

TEST(EngineGpu, OverlapChangesNoBit) {
  EXPECT_EQ(run({.choices = 6, .overlap = false}).tokens, run({.choices = 6}).tokens);
}

// The last step of the prompt has six rows, which fill a page; in that step the other choices begin, with two rows each
// behind that page.
TEST(EngineGpu, APageMayBeSharedInTheStepThatFillsIt) {
  const Outcome outcome = run({.choices = 5, .rows_max = 71, .prompt_tokens = 290, .temperature = 0});
  for (const std::vector<std::int32_t>& tokens : outcome.tokens) EXPECT_EQ(tokens, outcome.tokens.front());
}

TEST(EngineGpu, TheSameRequestGivesTheSameBits) { EXPECT_EQ(run({.choices = 12}), run({.choices = 12})); }

}  // namespace
}  // namespace rose
