// Attention and unembedding matrices in FP8 (ModelOptions::dense_format) on the CPU, which takes activations as they
// are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "models/gpt_oss/gpt_oss.h"
#include "models/testing/golden_model.h"
#include "models/testing/model_runner.h"
#include "weights/source.h"

namespace rose {
namespace {

using testing::GoldenModel;
using testing::ModelRunner;
using Logits = std::vector<std::vector<float>>;

class GoldenFolder {
 public:
  explicit GoldenFolder(const std::string& name)
      : golden(ROSE_SOURCE_DIR, name),
        path(golden.write(fmt::format("{}rose_dense_{}_{}", ::testing::TempDir(), name, getpid()))) {}
  ~GoldenFolder() { std::filesystem::remove_all(path); }

  GoldenModel golden;
  std::string path;
};

// Another source whose weights are changed after they were loaded.
class ChangedSource final : public WeightSource {
 public:
  using Change = void (*)(const WeightSpec& spec, Weight& weight);
  ChangedSource(const std::string& path, Change change) : source_(open_weights(path)), change_(change) {}

  const json::Value& config() const override { return source_->config(); }
  const json::Value& generation_config() const override { return source_->generation_config(); }
  std::string_view tokenizer_json() const override { return source_->tokenizer_json(); }
  std::string_view chat_format() const override { return source_->chat_format(); }
  std::string describe() const override { return source_->describe(); }
  WeightFormat expert_format() const override { return source_->expert_format(); }
  Weight load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
              const Stream& stream) override {
    Weight weight = source_->load(spec, plan, rank, format, arena, stream);
    change_(spec, weight);
    return weight;
  }

 private:
  std::unique_ptr<WeightSource> source_;
  Change change_;
};

bool is_dense(const WeightSpec& spec) {
  return spec.name.ends_with("attention.qkv") || spec.name.ends_with("attention.output") || spec.name == "unembedding";
}

// What FP8 keeps of a dense matrix, as bf16, which holds it exactly: tiles of the slice, scales by search.
void round_dense(const WeightSpec& spec, Weight& weight) {
  if (!is_dense(spec)) return;
  auto* values = weight.payload.as<Bf16>();
  const auto each_of_tile = [&](std::int64_t row, std::int64_t column, const auto& body) {
    for (std::int64_t r = row; r < std::min(row + 128, weight.out); ++r) {
      for (std::int64_t c = column; c < std::min(column + 128, weight.in); ++c) body(values[r * weight.in + c]);
    }
  };
  for (std::int64_t row = 0; row < weight.out; row += 128) {
    for (std::int64_t column = 0; column < weight.in; column += 128) {
      double largest = 0;
      each_of_tile(row, column, [&](Bf16 v) { largest = std::max(largest, std::fabs(double{to_float(v)})); });
      float scale = std::ldexp(1.0f, -126);
      while (largest > 448.0 * scale) scale *= 2;
      each_of_tile(row, column, [&](Bf16& v) { v = to_bf16(to_float(to_f8e4m3(to_float(v) / scale)) * scale); });
    }
  }
}

struct Prompt {
  std::vector<std::int32_t> tokens;
  std::vector<int> rows;  // whose logits are wanted
};

// Of rank 0. Ranks as threads.
template <class OpenSource>
Logits logits_of(const OpenSource& open, const Prompt& prompt, WeightFormat dense, const ParallelPlan& plan) {
  auto communicators = make_loopback_communicators(plan.ranks());
  std::vector<Logits> by_rank(static_cast<std::size_t>(plan.ranks()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const Stream stream = Stream::cpu(1);
      const auto source = open();
      const auto model = load_model(*source, {.plan = plan, .rank = rank, .dense_format = dense}, stream, {});
      const auto at = static_cast<std::size_t>(rank);
      const int count = static_cast<int>(prompt.tokens.size());
      ModelRunner runner(*model, *communicators[at], stream, {.rows_max = count, .positions_max = count});
      by_rank[at] = runner.run(prompt.tokens, prompt.rows, count);
    });
  }
  threads.clear();  // joins
  return by_rank.front();
}

Prompt first_tokens(const GoldenModel& golden, int count) {
  const testing::GoldenRun run = golden.runs().front().first(count);
  Prompt prompt{run.tokens, {}};
  for (int row = 0; row < static_cast<int>(run.tokens.size()); ++row) prompt.rows.push_back(row);
  return prompt;
}

// Powers of two and e4m3 values fit bf16, and the CPU sums both formats in the same order: the same bits. Cut before
// rounded: with two ranks the tiles of v begin elsewhere.
TEST(DenseFp8, IsTheModelWithRoundedMatrices) {
  const GoldenFolder folder("tiny_a");
  const Prompt prompt = first_tokens(folder.golden, 33);
  for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.dp = 1, .tp = 2, .ep = 2}}) {
    const auto stored = [&] { return open_weights(folder.path); };
    const auto changed = [&] { return std::make_unique<ChangedSource>(folder.path, round_dense); };
    const Logits fp8 = logits_of(stored, prompt, WeightFormat::kFp8, plan);
    EXPECT_EQ(fp8, logits_of(changed, prompt, WeightFormat::kBf16, plan)) << plan.describe();
    EXPECT_NE(fp8, logits_of(stored, prompt, WeightFormat::kBf16, plan)) << plan.describe();
  }
}

TEST(DenseFp8, TakesTheBytesOfItsSlices) {
  const GoldenFolder folder("tiny_a");
  const auto source = open_weights(folder.path);
  const GptOssConfig config = read_gpt_oss_config(source->config());
  for (const int rank : {0, 1}) {
    const ParallelPlan plan{.dp = 1, .tp = 2, .ep = 2};
    std::size_t bytes = Arena::aligned(sizeof(float) * static_cast<std::size_t>(config.head_dim) / 2), saved = 0;
    GptOssWeights unused;
    visit_weights(config, unused, [&](const WeightSpec& spec, Weight&) {
      const WeightSlice slice = slice_of(spec, plan, rank);
      EXPECT_EQ(spec.dense, is_dense(spec)) << spec.name;
      bytes += slice_bytes(spec, slice, {WeightFormat::kMxfp4, WeightFormat::kFp8});
      if (spec.dense) saved += static_cast<std::size_t>(slice.out() * slice.columns.size());
    });
    std::uint64_t last = 0;
    const Stream stream = Stream::cpu(1);
    const auto bf16 = load_model(*source, {.plan = plan, .rank = rank}, stream, {});
    const auto fp8 = load_model(*source, {.plan = plan, .rank = rank, .dense_format = WeightFormat::kFp8}, stream,
                                [&](std::uint64_t done, std::uint64_t) {
                                  EXPECT_GT(done, last);
                                  last = done;
                                });
    EXPECT_EQ(fp8->weight_bytes(), bytes);
    EXPECT_EQ(last, bytes);
    EXPECT_LT(fp8->weight_bytes(), bf16->weight_bytes() - saved * 99 / 100);  // less the scales
  }
}

TEST(DenseFp8, AValueThatIsNotFiniteIsRefusedByName) {
  const GoldenFolder folder("tiny_long");
  ChangedSource source(folder.path, [](const WeightSpec& spec, Weight& weight) {
    if (spec.name == "layers.1.attention.output") {
      weight.payload.as<Bf16>()[77] = to_bf16(std::numeric_limits<float>::infinity());
    }
  });
  try {
    load_model(source, {.plan = {}, .dense_format = WeightFormat::kFp8}, Stream::cpu(1), {});
    FAIL() << "loaded";
  } catch (const StartError& error) {
    EXPECT_NE(std::string(error.what()).find("layers.1.attention.output"), std::string::npos) << error.what();
  }
}

// Rounding to e4m3 moves a value by up to 2^-4 of its binade, 2^-4 / sqrt(3) on average, which is 2.4 % of values
// spread evenly over a binade (root mean square 1.53 of its lower end); sums of random products with it are off by the
// same 2.4 %. q and k move attention's weights by that at most where scores are of order 1, v and output its result,
// which is at most the whole residual. With the unembedding, L layers whose roundings do not know of each other are off
// by at most sqrt(1 + 4 L) 2.4 %, in rows that no rounding sends to another expert.
double bound_of(int layers) { return std::sqrt(1 + 4.0 * layers) * 0.0236; }

// Median over rows of the root mean square of a row's differences, over that of all logits.
double error_of(const Logits& found, const Logits& expected) {
  std::vector<double> rows;
  double sizes = 0;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    rows.push_back(0);
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      rows.back() += std::pow(static_cast<double>(found[r][i]) - expected[r][i], 2);
      sizes += std::pow(static_cast<double>(expected[r][i]), 2);
    }
  }
  std::sort(rows.begin(), rows.end());
  return std::sqrt(rows[rows.size() / 2] * static_cast<double>(rows.size()) / sizes);
}

TEST(DenseFp8, LogitsMoveByTheRoundingOfTheirMatrices) {
  const GoldenFolder wide("wide");
  const std::string tiny = std::string(ROSE_SOURCE_DIR) + "/models/rose-tiny";
  Prompt text;
  for (int i = 0; i < 100; ++i) {
    text.tokens.push_back(static_cast<std::int32_t>(random_bits(5, static_cast<std::uint64_t>(i)) % 2000));
    text.rows.push_back(i);
  }
  for (const auto& [path, prompt] : {std::pair{wide.path, first_tokens(wide.golden, 8)}, {tiny, text}}) {
    const auto stored = [&, &path = path] { return open_weights(path); };
    const int layers = model_shape(*stored()).layers;
    const double error =
        error_of(logits_of(stored, prompt, WeightFormat::kFp8, {}), logits_of(stored, prompt, WeightFormat::kBf16, {}));
    fmt::print("  dense matrices in fp8, {} layers: error {:.2e}, at most {:.2e}\n", layers, error, bound_of(layers));
    EXPECT_LE(error, bound_of(layers));
    EXPECT_GE(error, 0.01);
  }
}

}  // namespace
}  // namespace rose
