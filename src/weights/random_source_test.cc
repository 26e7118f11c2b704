// Random weights: slices agree with the whole, values are spread as promised, and nothing depends on how the work was
// divided.
#include "weights/random_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/result.h"
#include "weights/fp8/fp8.h"
#include "weights/testing/checkpoint.h"
#include "weights/testing/support.h"

namespace rose {
namespace {

const synthetic::Shape kShape{.layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};
// The published widths, few experts.
const synthetic::Shape kWide{
    .layers = 1, .hidden = 2880, .intermediate = 2880, .experts = 2, .heads = 64, .kv_heads = 8, .vocabulary = 512};

RandomSource source_of(std::uint64_t seed = 1) { return RandomSource("test", json::Object{}, seed, "{}"); }

struct Loaded {
  std::unique_ptr<Arena> arena;
  Weight weight;
};
Loaded load(WeightSource& source, const WeightSpec& spec, const ParallelPlan& plan = {}, int rank = 0,
            int threads = 1) {
  const std::size_t bytes = slice_bytes(spec, slice_of(spec, plan, rank), WeightFormat::kMxfp4);
  Loaded loaded{std::make_unique<Arena>(Device{}, bytes, "test"), {}};
  loaded.weight = source.load(spec, plan, rank, WeightFormat::kMxfp4, *loaded.arena, Stream::cpu(threads));
  EXPECT_EQ(loaded.arena->bytes_used(), bytes) << spec.name;
  return loaded;
}

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  if (tensor.empty()) return {};
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.raw());
  return {bytes, bytes + tensor.bytes()};
}

const WeightSpec& spec_named(const std::vector<WeightSpec>& specs, std::string_view name) {
  return *std::find_if(specs.begin(), specs.end(), [&](const WeightSpec& spec) { return spec.name == name; });
}

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};
Moments moments_of(const std::vector<double>& values) {
  Moments moments{.least = values.front(), .most = values.front()};
  double squares = 0;
  for (const double value : values) {
    moments.mean += value;
    squares += value * value;
    moments.least = std::min(moments.least, value);
    moments.most = std::max(moments.most, value);
  }
  const auto count = static_cast<double>(values.size());
  moments.mean /= count;
  moments.deviation = std::sqrt(squares / count - moments.mean * moments.mean);
  return moments;
}

TEST(RandomSource, EveryRanksSliceIsThatPartOfTheWhole) {
  RandomSource source = source_of();
  for (const WeightSpec& spec : synthetic::specs(kShape)) {
    const Loaded whole = load(source, spec);
    const std::vector<double> values = synthetic::decoded(whole.weight);
    const std::vector<double> bias = synthetic::decoded_bias(whole.weight);
    for (const ParallelPlan& plan :
         {ParallelPlan{.tp = 2}, ParallelPlan{.tp = 2, .ep = 2}, ParallelPlan{.dp = 2, .tp = 2, .ep = 1},
          ParallelPlan{.dp = 2, .tp = 2, .ep = 2}}) {
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const WeightSlice slice = slice_of(spec, plan, rank);
        const Loaded part = load(source, spec, plan, rank);
        const std::string place = fmt::format("{} rank {} of {}", spec.name, rank, plan.describe());
        ASSERT_EQ(synthetic::decoded(part.weight), synthetic::sliced(values, spec, slice, spec.in)) << place;
        ASSERT_EQ(part.weight.bias.empty(), !slice.holds_bias) << place;
        if (slice.holds_bias) {
          ASSERT_EQ(synthetic::decoded_bias(part.weight), synthetic::sliced(bias, spec, slice, 1)) << place;
        }
      }
    }
  }
}

TEST(RandomSource, TheSameBitsComeFromAnyNumberOfThreadsAndAnotherSeedGivesOthers) {
  RandomSource first = source_of(1), again = source_of(1), other = source_of(2);
  for (const WeightSpec& spec : synthetic::specs(kShape)) {
    const Loaded a = load(first, spec, {}, 0, 1), b = load(again, spec, {}, 0, 3), c = load(other, spec);
    EXPECT_EQ(bytes_of(a.weight.payload), bytes_of(b.weight.payload)) << spec.name;
    EXPECT_EQ(bytes_of(a.weight.scales), bytes_of(b.weight.scales)) << spec.name;
    EXPECT_EQ(bytes_of(a.weight.bias), bytes_of(b.weight.bias)) << spec.name;
    EXPECT_NE(bytes_of(a.weight.payload), bytes_of(c.weight.payload)) << spec.name;
  }
}

TEST(RandomSource, NoTwoWeightsAndNoTwoRowsAreEqual) {
  RandomSource source = source_of();
  std::set<std::vector<double>> rows;
  std::size_t count = 0;
  for (const WeightSpec& spec : synthetic::specs(kShape)) {
    if (spec.kind == WeightKind::kVector) continue;
    const std::vector<double> values = synthetic::decoded(load(source, spec).weight);
    for (auto row = values.begin(); row != values.end(); row += spec.in) {
      rows.insert(std::vector<double>(row, row + std::min<std::int64_t>(spec.in, 64)));
      ++count;
    }
  }
  EXPECT_EQ(rows.size(), count);
}

// Bounds: a mean of n values lies within 5 deviations / sqrt(n) of its own, a deviation within 5 / sqrt(n) of its own
// relatively (both are exceeded once in millions of seeds).
TEST(RandomSource, DistributionsAreAsPromised) {
  RandomSource source = source_of();
  const std::vector<WeightSpec> specs = synthetic::specs(kWide);
  const std::map<std::string, double> deviations = {{"embedding", 1},
                                                    {"layers.0.attention.qkv", 1 / std::sqrt(2880.0)},
                                                    {"layers.0.attention.output", 1 / std::sqrt(4096.0)},
                                                    {"layers.0.mlp.router", 1 / std::sqrt(2880.0)},
                                                    {"layers.0.attention.sinks", 1},
                                                    {"unembedding", 1 / std::sqrt(2880.0)}};
  for (const auto& [name, expected] : deviations) {
    const std::vector<double> values = synthetic::decoded(load(source, spec_named(specs, name)).weight);
    const Moments moments = moments_of(values);
    const double error = 5 / std::sqrt(static_cast<double>(values.size()));
    EXPECT_NEAR(moments.mean, 0, error * expected) << name;
    EXPECT_NEAR(moments.deviation / expected, 1, error + 1.0 / 256) << name;  // rounding to bf16 is below 2^-8
    EXPECT_LE(moments.most, expected * std::sqrt(3.0) * (1 + 1.0 / 256)) << name;
    EXPECT_GE(moments.least, -expected * std::sqrt(3.0) * (1 + 1.0 / 256)) << name;
  }
  for (const char* name : {"layers.0.attention.norm", "layers.0.mlp.norm", "final_norm"}) {
    const Moments moments = moments_of(synthetic::decoded(load(source, spec_named(specs, name)).weight));
    EXPECT_NEAR(moments.mean, 1, 0.03) << name;
    EXPECT_NEAR(moments.deviation, 1 / std::sqrt(12.0), 0.02) << name;
    EXPECT_GE(moments.least, 0.5) << name;
    EXPECT_LE(moments.most, 1.5) << name;
  }
  const Moments bias =
      moments_of(synthetic::decoded_bias(load(source, spec_named(specs, "layers.0.attention.qkv")).weight));
  EXPECT_NEAR(bias.deviation, 0.02, 0.001);
}

TEST(RandomSource, ExpertsHoldAllCodesAndFiveScalesEquallyOftenAndFitFp8Exactly) {
  RandomSource source = source_of();
  for (const char* name : {"layers.0.mlp.gate_up", "layers.0.mlp.down"}) {
    const WeightSpec spec = spec_named(synthetic::specs(kWide), name);
    const Loaded loaded = load(source, spec);
    std::array<std::int64_t, 16> codes{};
    for (const std::uint8_t byte : bytes_of(loaded.weight.payload)) ++codes[byte & 15], ++codes[byte >> 4];
    const auto elements = static_cast<double>(loaded.weight.payload.elements() * 2);
    for (const std::int64_t count : codes) {
      EXPECT_NEAR(static_cast<double>(count), elements / 16, 5 * std::sqrt(elements / 16)) << name;
    }
    std::map<int, std::int64_t> scales;
    for (const std::uint8_t byte : bytes_of(loaded.weight.scales)) ++scales[byte];
    ASSERT_EQ(scales.size(), 5u);
    EXPECT_EQ(scales.rbegin()->first - scales.begin()->first, 4);
    const auto groups = static_cast<double>(loaded.weight.scales.elements());
    for (const auto& [byte, count] : scales) {
      EXPECT_NEAR(static_cast<double>(count), groups / 5, 5 * std::sqrt(groups / 5)) << name << " " << byte;
    }
    std::vector<float> row(static_cast<std::size_t>(spec.in));
    double squares = 0;
    for (std::int64_t r = 0; r < spec.out; ++r) {
      decode_row(loaded.weight, 1, r, row.data());
      for (const float value : row) squares += static_cast<double>(value) * value;
    }
    // Powers of two: at most sqrt(2) away.
    const double ratio = std::sqrt(squares / static_cast<double>(spec.out * spec.in)) * std::sqrt(spec.in);
    EXPECT_GT(ratio, 0.99 / std::sqrt(2.0)) << name;
    EXPECT_LT(ratio, 1.01 * std::sqrt(2.0)) << name;

    std::vector<F8E4M3> tile(128 * 128);
    float scale = 0;
    const fp8::TileOutcome outcome = fp8::encode_tile_mxfp4(loaded.weight.payload.as<std::uint8_t>(), spec.in / 2,
                                                            loaded.weight.scales.as<std::uint8_t>(), spec.in / 32, 128,
                                                            128, tile.data(), 128, &scale);
    EXPECT_TRUE(outcome.exact);
    EXPECT_EQ(outcome.spread, 4);
  }
}

TEST(RandomSource, ExpertsInAnotherFormatAreRefusedByName) {
  RandomSource source = source_of();
  const WeightSpec spec = spec_named(synthetic::specs(kShape), "layers.0.mlp.down");
  Arena arena(Device{}, slice_bytes(spec, slice_of(spec, {}, 0), WeightFormat::kFp8), "test");
  try {
    source.load(spec, {}, 0, WeightFormat::kFp8, arena, Stream::cpu(1));
    FAIL();
  } catch (const StartError& error) {
    EXPECT_NE(std::string(error.what()).find("layers.0.mlp.down: fp8 experts are asked for"), std::string::npos);
  }
}

TEST(RandomSource, ThePublishedSizesAreNamedAndOthersRefused) {
  const auto large = open_random_weights("120b", 1, R"({"version":"1.0"})");
  EXPECT_EQ(large->describe(), "random gpt-oss-120b (seed 1)");
  EXPECT_EQ(large->config().at("num_hidden_layers").as_int64(), 36);
  EXPECT_EQ(large->config().at("num_local_experts").as_int64(), 128);
  EXPECT_EQ(large->config().at("layer_types").as_array().size(), 36u);
  EXPECT_EQ(large->config().at("layer_types").as_array().back(), "full_attention");
  EXPECT_EQ(large->generation_config().at("eos_token_id").as_array().size(), 3u);
  EXPECT_EQ(large->tokenizer_json(), R"({"version":"1.0"})");
  EXPECT_EQ(large->expert_format(), WeightFormat::kMxfp4);
  const auto small = open_random_weights("20b", 7, "");
  EXPECT_EQ(small->describe(), "random gpt-oss-20b (seed 7)");
  EXPECT_EQ(small->config().at("num_hidden_layers").as_int64(), 24);
  EXPECT_EQ(small->config().at("num_local_experts").as_int64(), 32);
  EXPECT_THROW(open_random_weights("7b", 1, ""), StartError);
}

}  // namespace
}  // namespace rose
