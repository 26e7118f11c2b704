#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "base/result.h"
#include "models/model.h"
#include "models/testing/published.h"

namespace rose {
namespace {

// A source that knows its config and holds no weights.
class ConfigOnly : public WeightSource {
 public:
  explicit ConfigOnly(json::Value config) : config_(std::move(config)) {}
  const json::Value& config() const override { return config_; }
  const json::Value& generation_config() const override { return config_; }
  std::string_view tokenizer_json() const override { return {}; }
  std::string_view chat_format() const override { return "harmony"; }
  std::string describe() const override { return "a config"; }
  WeightFormat expert_format() const override { return WeightFormat::kMxfp4; }
  Weight load(const WeightSpec& spec, const ParallelPlan&, int, WeightFormat, Arena&, const Stream&) override {
    throw StartError("no weights: " + spec.name);
  }

 private:
  json::Value config_;
};

// Bytes of the tensors of one spec as the published files hold them, without any alignment.
std::int64_t published_bytes(const WeightSpec& spec) {
  const std::int64_t copies = spec.kind == WeightKind::kExperts ? spec.experts : 1;
  const std::int64_t elements = copies * spec.out * spec.in;
  const std::int64_t payload = spec.kind == WeightKind::kExperts ? elements / 2 + elements / kMxfp4Group : elements * 2;
  return payload + (spec.bias ? copies * spec.out * 2 : 0);
}

std::int64_t published_tensors(const WeightSpec& spec) {
  const std::int64_t each = (spec.kind == WeightKind::kExperts ? 2 : 1) + (spec.bias ? 1 : 0);
  return each * static_cast<std::int64_t>(spec.parts.size());
}

struct Totals {
  const char* size;
  std::int64_t bytes;
  std::int64_t tensors;
};

class PublishedTotals : public ::testing::TestWithParam<Totals> {};

// metadata.total_size and the number of tensors of model.safetensors.index.json (model.md 2.1 and "What is verified").
TEST_P(PublishedTotals, TheListOfWeightsAddsUpToTheIndex) {
  const ConfigOnly source(testing::published_config(GetParam().size));
  std::int64_t bytes = 0;
  std::int64_t tensors = 0;
  std::set<std::string> names;
  visit_model_specs(source, [&](const WeightSpec& spec) {
    bytes += published_bytes(spec);
    tensors += published_tensors(spec);
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    std::int64_t rows = 0;
    for (const SourcePart& part : spec.parts) rows += part.rows;
    EXPECT_EQ(rows, spec.out) << spec.name;
  });
  EXPECT_EQ(bytes, GetParam().bytes);
  EXPECT_EQ(tensors, GetParam().tensors);
}

INSTANTIATE_TEST_SUITE_P(, PublishedTotals,
                         ::testing::Values(Totals{"20b", 13'761'264'768, 459}, Totals{"120b", 65'248'815'744, 687}),
                         [](const auto& test) { return std::string("Gpt") + test.param.size; });

// What each rank holds adds up to the whole, plus the copies.
TEST(ModelSpecs, RanksHoldEveryShardedWeightOnce) {
  const ConfigOnly source(testing::published_config("20b"));
  for (const ParallelPlan plan : {ParallelPlan{.dp = 1, .tp = 2, .ep = 1}, {1, 4, 4}, {1, 8, 2}, {1, 8, 8}}) {
    visit_model_specs(source, [&](const WeightSpec& spec) {
      std::int64_t held = 0;
      int biases = 0;
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const WeightSlice slice = slice_of(spec, plan, rank);
        held += std::max<std::int64_t>(1, slice.experts.size()) * slice.out() * slice.columns.size();
        biases += slice.holds_bias ? 1 : 0;
      }
      const std::int64_t whole = std::max<std::int64_t>(1, spec.experts) * spec.out * spec.in;
      EXPECT_EQ(held, spec.shard == Shard::kCopy ? whole * plan.ranks() : whole) << spec.name << plan.describe();
      EXPECT_EQ(spec.shard == Shard::kColumns ? biases : 1, 1) << spec.name << plan.describe();
    });
  }
}

TEST(ModelShape, IsReadWithoutWeights) {
  const ModelShape shape = model_shape(ConfigOnly(testing::published_config("120b")));
  EXPECT_EQ(shape.name, "gpt_oss");
  EXPECT_EQ(shape.layers, 36);
  EXPECT_EQ(shape.experts, 128);
  EXPECT_EQ(shape.heads, 64);
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.positions_max, 131072);
}

TEST(ModelList, AnUnknownModelIsRefusedWithTheListOfKnownOnes) {
  for (const json::Value& config : {json::Value{{"model_type", "llama"}}, json::Value(json::Object{}),
                                    json::Value{{"model_type", 3}}, json::Value(7)}) {
    try {
      model_shape(ConfigOnly(config));
      FAIL() << "accepted " << json::serialize(config);
    } catch (const StartError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("supported: gpt_oss"));
    }
  }
}

TEST(ModelPlans, APlanThatDoesNotFitIsRefusedBeforeAnyWeightIsRead) {
  ConfigOnly source(testing::published_config("20b"));
  const Stream stream = Stream::cpu(1);
  for (const ParallelPlan plan : {ParallelPlan{.dp = 1, .tp = 3, .ep = 1}, {1, 16, 1}, {2, 1, 1}, {1, 2, 3}}) {
    try {
      load_model(source, {.plan = plan}, stream, {});
      FAIL() << plan.describe();
    } catch (const StartError& error) {
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("no weights"))) << plan.describe();
    }
  }
}

}  // namespace
}  // namespace rose
