// Steps of one row, in one kernel through all layers (ops/decode_layers), at the published width with random weights:
// against the CPU in f32, and beside the operations one by one, which round to bf16 in more places. Both are off by
// 0.4 % a layer before the layers behind magnify it (golden_gpu_test.cc); the one kernel must not be further off than
// the operations, but for what the median of a few dozen rows varies by. (Random routers nearly tie: with 128 experts
// half of the rows go another way somewhere, which 6 % are.)
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "models/model.h"
#include "models/testing/model_runner.h"
#include "models/testing/published.h"
#include "models/testing/row_errors.h"
#include "weights/random_source.h"

namespace rose {
namespace {

using testing::median_error;
using testing::ModelRunner;
using Logits = std::vector<std::vector<float>>;

struct Setting {
  bool fused = true;
  DType kv = DType::kBf16;
  int page_size = 32;
  int experts = 32;
  int prompt = 270;  // in steps of up to 256 rows
  int steps = 40;    // of one row
};

RandomSource source_of(int experts) {
  json::Value config = testing::published_config("20b");
  json::Object& object = config.as_object();
  object["num_hidden_layers"] = 3;
  object["num_local_experts"] = experts;
  object["vocab_size"] = 1024;
  object["pad_token_id"] = 0;
  object["eos_token_id"] = 1;
  object["layer_types"] = json::Array{"sliding_attention", "full_attention", "sliding_attention"};
  return RandomSource("three layers", config, 7, "");
}

// Logits of the steps of one row.
Logits decode(const Stream& stream, const Setting& setting) {
  const bool cpu = stream.device().is_cpu();
  RandomSource source = source_of(setting.experts);
  const DType activations = cpu ? DType::kF32 : DType::kBf16;
  const auto model =
      load_model(source, {.plan = {}, .activations = activations, .bf16_experts = true, .fused_decode = setting.fused},
                 stream, {});
  const auto solo = make_solo_communicator();
  ModelRunner runner(*model, *solo, stream,
                     {.page_size = setting.page_size,
                      .rows_max = 256,
                      .positions_max = setting.prompt + setting.steps,
                      .kv_dtype = cpu ? DType::kF32 : setting.kv,
                      .activations = activations});
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < setting.prompt; ++i) {
    prompt.push_back(static_cast<std::int32_t>(random_bits(5, static_cast<std::uint64_t>(i)) % 1024));
  }
  runner.run(prompt, {}, 256);
  Logits logits;
  for (int i = 0; i < setting.steps; ++i) {
    const auto token = static_cast<std::int32_t>(random_bits(6, static_cast<std::uint64_t>(i)) % 1024);
    logits.push_back(runner.step({{.sequence = 0, .tokens = {token}, .logit_rows = {0}}}).at(0));
  }
  return logits;
}

void expect_as_good_as_the_operations(const Setting& setting) {
  const Logits expected = decode(Stream::cpu(16), setting);
  Setting plain = setting;
  plain.fused = false;
  const double fused_error = median_error(decode(Stream::cuda(0), setting), expected);
  const double plain_error = median_error(decode(Stream::cuda(0), plain), expected);
  std::printf("  %d experts, %s, behind %d tokens: one kernel %.2e, operations %.2e\n", setting.experts,
              std::string(dtype_name(setting.kv)).c_str(), setting.prompt, fused_error, plain_error);
  EXPECT_LE(fused_error, 1.15 * plain_error);
  EXPECT_LE(fused_error, setting.experts > 32 || setting.kv == DType::kF8E4M3 ? 0.1 : 0.02);
}

TEST(DecodeLayersGpu, AreAsNearToTheCpuAsTheOperations) { expect_as_good_as_the_operations({}); }
TEST(DecodeLayersGpu, FromTheFirstPositionOn) { expect_as_good_as_the_operations({.prompt = 1, .steps = 45}); }
TEST(DecodeLayersGpu, WithSmallPagesAndManyExperts) {
  expect_as_good_as_the_operations({.page_size = 16, .experts = 128, .prompt = 120, .steps = 24});
}
TEST(DecodeLayersGpu, WithAnE4m3Cache) { expect_as_good_as_the_operations({.kv = DType::kF8E4M3}); }

// Long enough that every warp of every block has several turns, against the operations alone: both are off the truth
// by what the tests above find, so from each other by at most the sum.
TEST(DecodeLayersGpu, BehindALongContext) {
  for (const DType kv : {DType::kBf16, DType::kF8E4M3}) {
    const Setting setting{.kv = kv, .prompt = 9001, .steps = 20};
    Setting plain = setting;
    plain.fused = false;
    const double difference = median_error(decode(Stream::cuda(0), setting), decode(Stream::cuda(0), plain));
    std::printf("  behind 9001 tokens: %.2e apart\n", difference);
    EXPECT_LE(difference, kv == DType::kF8E4M3 ? 0.08 : 0.03);
    EXPECT_GT(difference, 0);  // or it did not run
  }
}

TEST(DecodeLayersGpu, TheSameBitsAgain) {
  const Setting setting{.prompt = 700, .steps = 30};
  EXPECT_EQ(decode(Stream::cuda(0), setting), decode(Stream::cuda(0), setting));
}

}  // namespace
}  // namespace rose
