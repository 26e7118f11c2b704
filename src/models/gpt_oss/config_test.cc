#include "models/gpt_oss/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "base/result.h"
#include "models/testing/published.h"

namespace rose {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Edit = std::function<void(json::Object&)>;

GptOssConfig read_edited(const Edit& edit) {
  json::Value config = testing::published_config("20b");
  edit(config.as_object());
  return read_gpt_oss_config(config);
}

TEST(GptOssConfig, ThePublishedFilesAreRead) {
  const GptOssConfig small = read_gpt_oss_config(testing::published_config("20b"));
  EXPECT_EQ(small.layers, 24);
  EXPECT_EQ(small.hidden, 2880);
  EXPECT_EQ(small.intermediate, 2880);
  EXPECT_EQ(small.heads, 64);
  EXPECT_EQ(small.kv_heads, 8);
  EXPECT_EQ(small.head_dim, 64);
  EXPECT_EQ(small.experts, 32);
  EXPECT_EQ(small.experts_per_token, 4);
  EXPECT_EQ(small.vocabulary, 201088);
  EXPECT_EQ(small.positions_max, 131072);
  EXPECT_FLOAT_EQ(small.epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(small.swiglu_limit, 7);
  EXPECT_FLOAT_EQ(small.attention_scale(), 0.125f);
  EXPECT_TRUE(small.attention_bias);
  for (int layer = 0; layer < 24; ++layer) EXPECT_EQ(small.windows.at(layer), layer % 2 == 0 ? 128 : 0);
  EXPECT_EQ(small.rope.theta, 150000);
  EXPECT_EQ(small.rope.factor, 32);
  EXPECT_EQ(small.rope.beta_fast, 32);
  EXPECT_EQ(small.rope.beta_slow, 1);
  EXPECT_EQ(small.rope.original_positions, 4096);
  EXPECT_FALSE(small.rope.truncate);

  const GptOssConfig large = read_gpt_oss_config(testing::published_config("120b"));
  EXPECT_EQ(large.layers, 36);
  EXPECT_EQ(large.experts, 128);
  EXPECT_EQ(large.windows.back(), 0);
}

TEST(GptOssConfig, BothSpellingsOfRopeMeanTheSame) {
  const GptOssConfig config = read_edited([](json::Object& c) {
    json::Object rope = c.at("rope_scaling").as_object();
    rope["rope_theta"] = 12345.0;
    rope["truncate"] = true;
    c.erase("rope_scaling");
    c.erase("rope_theta");
    c["rope_parameters"] = rope;
    c["swiglu_alpha"] = 1.702;
  });
  EXPECT_EQ(config.rope.theta, 12345);
  EXPECT_EQ(config.rope.factor, 32);
  EXPECT_EQ(config.rope.original_positions, 4096);
  EXPECT_TRUE(config.rope.truncate);
}

TEST(GptOssConfig, WhatIsAbsentTakesThePublishedValue) {
  const GptOssConfig config = read_edited([](json::Object& c) {
    for (const char* name : {"rope_scaling", "rope_theta", "layer_types", "swiglu_limit", "rms_norm_eps",
                             "attention_bias", "num_experts_per_tok", "quantization_config", "pad_token_id"}) {
      c.erase(name);
    }
  });
  const GptOssConfig published = read_gpt_oss_config(testing::published_config("20b"));
  EXPECT_EQ(config.windows, published.windows);
  EXPECT_EQ(config.rope.factor, 32);
  EXPECT_EQ(config.rope.theta, 150000);
  EXPECT_FALSE(config.rope.truncate);
  EXPECT_EQ(config.experts_per_token, 4);  // from experts_per_token
  EXPECT_EQ(config.swiglu_limit, published.swiglu_limit);
  EXPECT_EQ(config.epsilon, published.epsilon);
}

// max_position_embeddings is the length after scaling: taking it for the original length bends every frequency.
TEST(GptOssConfig, TheOriginalLengthIsNeverTheScaledOne) {
  const GptOssConfig config = read_edited([](json::Object& c) {
    c.at("rope_scaling").as_object().erase("original_max_position_embeddings");
    c["initial_context_length"] = 2048;
  });
  EXPECT_EQ(config.rope.original_positions, 2048);
  EXPECT_THROW(read_edited([](json::Object& c) {
                 c.at("rope_scaling").as_object().erase("original_max_position_embeddings");
                 c.erase("initial_context_length");
               }),
               StartError);
}

TEST(GptOssConfig, PlainRopeHasNoScaling) {
  const GptOssConfig config = read_edited([](json::Object& c) { c["rope_scaling"] = {{"rope_type", "default"}}; });
  EXPECT_EQ(config.rope.factor, 1);
}

struct Refusal {
  const char* name;
  Edit edit;
  const char* says;  // both texts must be in the message
  const char* also;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class GptOssConfigRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(GptOssConfigRefuses, SayingTheFieldAndWhatIsExpected) {
  try {
    read_edited(GetParam().edit);
    FAIL() << "accepted";
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(GetParam().says), HasSubstr(GetParam().also)));
    EXPECT_EQ(error.exit_code(), kExitBadFiles);
  }
}

Edit set(const char* name, json::Value value) {
  return [=](json::Object& c) { c[name] = value; };
}
Edit set_rope(const char* name, json::Value value) {
  return [=](json::Object& c) { c.at("rope_scaling").as_object()[name] = value; };
}
Edit remove(const char* name) {
  return [=](json::Object& c) { c.erase(name); };
}

INSTANTIATE_TEST_SUITE_P(
    , GptOssConfigRefuses,
    ::testing::Values(
        Refusal{"NoLayers", set("num_hidden_layers", 0), "num_hidden_layers is 0", "from 1 to 1024"},
        Refusal{"MissingWidth", remove("hidden_size"), "hidden_size is missing", "a whole number"},
        Refusal{"FractionalWidth", set("hidden_size", 2880.5), "hidden_size is 2.8805", "a whole number"},
        Refusal{"HugeWidth", set("hidden_size", 9223372036854775807), "hidden_size is 9223372036854775807", "131072"},
        Refusal{"TextWidth", set("hidden_size", "2880"), "hidden_size is \"2880\"", "a number"},
        Refusal{"NegativeVocabulary", set("vocab_size", -1), "vocab_size is -1", "from 1"},
        Refusal{"OddGroups", set("intermediate_size", 2864), "intermediate_size is 2864", "multiple of 32"},
        Refusal{"UnevenHeads", set("num_key_value_heads", 7), "num_attention_heads is 64", "multiple of 7"},
        Refusal{"OddHeadDim", set("head_dim", 65), "head_dim is 65", "multiple of 8"},
        Refusal{"HugeHeadDim", set("head_dim", 512), "head_dim is 512", "256"},
        Refusal{"MoreActiveThanExperts", set("num_local_experts", 2), "at most num_local_experts", "2"},
        Refusal{"DisagreeingActives", set("experts_per_token", 8), "experts_per_token is 8", "num_experts_per_tok"},
        Refusal{"OtherActivation", set("hidden_act", "gelu"), "hidden_act is \"gelu\"", "\"silu\""},
        Refusal{"OtherAlpha", set("swiglu_alpha", 1.0), "swiglu_alpha is 1", "1.702"},
        Refusal{"NoClamp", set("swiglu_limit", 0), "swiglu_limit is 0", "from 0.001"},
        Refusal{"Dropout", set("attention_dropout", 0.1), "attention_dropout is 1E-1", "0"},
        Refusal{"Tied", set("tie_word_embeddings", true), "tie_word_embeddings is true", "false"},
        Refusal{"OtherQuantization", set("quantization_config", {{"quant_method", "gptq"}}),
                "quantization_config.quant_method is \"gptq\"", "\"mxfp4\""},
        Refusal{"NoEpsilon", set("rms_norm_eps", 0), "rms_norm_eps is 0", "from"},
        Refusal{"NoWindow", set("sliding_window", 0), "sliding_window is 0", "from 1"},
        Refusal{"NullWindow", set("sliding_window", nullptr), "sliding_window is missing", "from 1"},
        Refusal{"ShortLayerTypes", set("layer_types", json::Array{"full_attention"}), "layer_types is", "24 times"},
        Refusal{"OtherLayerType", [](json::Object& c) { c.at("layer_types").as_array()[3] = "linear_attention"; },
                "layer_types is", "full_attention"},
        Refusal{"PadBeyondVocabulary", set("pad_token_id", 201088), "pad_token_id is 201088", "201087"},
        Refusal{"EosBeyondVocabulary", set("eos_token_id", 201088), "eos_token_id is 201088", "201087"},
        Refusal{"OtherRope", set_rope("rope_type", "llama3"), "rope_scaling.rope_type is \"llama3\"", "\"yarn\""},
        Refusal{"ShrinkingRope", set_rope("factor", 0.5), "rope_scaling.factor is 5E-1", "from 1"},
        Refusal{"TruncateNumber", set_rope("truncate", 1), "rope_scaling.truncate is 1", "true or false"},
        Refusal{"OtherConcentration", set_rope("attention_factor", 1.0), "rope_scaling.attention_factor is 1",
                "1.34657"},
        Refusal{"PartialRotation", set_rope("partial_rotary_factor", 0.5), "partial_rotary_factor is 5E-1", "1"},
        Refusal{"SwappedBetas", set_rope("beta_fast", 0.5), "beta_fast 0.5", "beta_slow 1"},
        Refusal{"RopeNumber", set("rope_scaling", 32), "rope_scaling is 32", "an object"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace rose
