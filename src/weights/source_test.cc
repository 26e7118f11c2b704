// Loading from checkpoint folders of every layout, for every rank of several plans, in every format.
#include "weights/source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/result.h"
#include "weights/stored.h"
#include "weights/testing/checkpoint.h"
#include "weights/testing/support.h"

namespace rose {
namespace {

using synthetic::TensorMap;

std::string fresh_folder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "rose_source_test_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

struct Loaded {
  std::unique_ptr<Arena> arena;
  Weight weight;
};
Loaded load(WeightSource& source, const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format) {
  const std::size_t bytes = slice_bytes(spec, slice_of(spec, plan, rank), format);
  Loaded loaded{std::make_unique<Arena>(Device{}, bytes, "test"), {}};
  loaded.weight = source.load(spec, plan, rank, format, *loaded.arena, Stream::cpu(1));
  EXPECT_EQ(loaded.arena->bytes_used(), bytes) << "slice_bytes is what loading takes";
  return loaded;
}

void expect_slices(WeightSource& source, const TensorMap& tensors, const synthetic::Shape& shape,
                   const ParallelPlan& plan, WeightFormat format) {
  for (const WeightSpec& spec : synthetic::specs(shape)) {
    const std::vector<double> whole = synthetic::expected_values(tensors, spec);
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const Loaded loaded = load(source, spec, plan, rank, format);
      const WeightSlice slice = slice_of(spec, plan, rank);
      const bool experts = spec.kind == WeightKind::kExperts;
      ASSERT_EQ(loaded.weight.format, experts ? format : WeightFormat::kBf16);
      ASSERT_EQ(synthetic::decoded(loaded.weight), synthetic::sliced(whole, spec, slice, spec.in))
          << spec.name << " rank " << rank << " of " << plan.describe();
      ASSERT_EQ(loaded.weight.bias.empty(), !slice.holds_bias) << spec.name;
      if (slice.holds_bias) {
        ASSERT_EQ(synthetic::decoded_bias(loaded.weight),
                  synthetic::sliced(synthetic::expected_bias(tensors, spec), spec, slice, 1))
            << spec.name;
      }
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(loaded.weight.payload.raw()) % Arena::kAlignment, 0u);
    }
  }
}

// H = 192 and I = 320 differ, are odd multiples of 64, and end within a 128-tile: a wrong transpose, swap or tile
// fails.
const synthetic::Shape kTinyA{.layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};
const ParallelPlan kPlans[] = {
    {}, {.tp = 2}, {.tp = 2, .ep = 2}, {.dp = 2, .tp = 2, .ep = 1}, {.dp = 2, .tp = 2, .ep = 2}};

TEST(Checkpoint, EveryRankLoadsItsSliceInEveryFormatExactly) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 1);
  const std::string folder = synthetic::write_checkpoint(fresh_folder("published"), kTinyA, tensors);
  const auto source = open_weights(folder);
  EXPECT_EQ(source->expert_format(), WeightFormat::kMxfp4);
  EXPECT_EQ(source->chat_format(), "harmony");
  EXPECT_EQ(source->tokenizer_json(), R"({"version":"1.0"})");
  EXPECT_EQ(source->config().at("hidden_size").as_int64(), 192);
  EXPECT_EQ(source->generation_config().at("eos_token_id").as_array().size(), 3u);
  EXPECT_EQ(source->describe(), "checkpoint " + folder + " (mxfp4 experts)");
  for (const ParallelPlan& plan : kPlans) {
    for (const WeightFormat format : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
      expect_slices(*source, tensors, kTinyA, plan, format);
    }
  }
}

TEST(Checkpoint, MxfpBytesAreKeptAsTheyAre) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 2);
  const auto source = open_weights(synthetic::write_checkpoint(fresh_folder("bytes"), kTinyA, tensors));
  for (const WeightSpec& spec : synthetic::specs(kTinyA)) {
    if (spec.kind != WeightKind::kExperts) continue;
    const Loaded loaded = load(*source, spec, {}, 0, WeightFormat::kMxfp4);
    const auto bytes = [](const Tensor& tensor) {
      return std::vector<std::uint8_t>(tensor.as<std::uint8_t>(), tensor.as<std::uint8_t>() + tensor.elements());
    };
    EXPECT_EQ(bytes(loaded.weight.payload), tensors.at(spec.parts[0].tensor + "_blocks").bytes);
    EXPECT_EQ(bytes(loaded.weight.scales), tensors.at(spec.parts[0].tensor + "_scales").bytes);
  }
}

TEST(Checkpoint, ShardedEqualsSingle) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 3);
  const auto source = open_weights(synthetic::write_checkpoint(fresh_folder("sharded"), kTinyA, tensors, 3));
  expect_slices(*source, tensors, kTinyA, {.tp = 2}, WeightFormat::kMxfp4);
}

TEST(Checkpoint, TheOriginalLayoutGivesTheSameWeightsAndConfig) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 4);
  const std::string folder = fresh_folder("with_original");
  synthetic::write_checkpoint(folder, kTinyA, tensors);
  synthetic::write_checkpoint(folder + "/original", kTinyA, synthetic::original_tensors(tensors));
  std::filesystem::remove(folder + "/original/tokenizer.json");  // lies beside the published layout only
  std::filesystem::remove(folder + "/original/generation_config.json");
  const auto original = open_weights(folder + "/original/");
  expect_slices(*original, tensors, kTinyA, {.tp = 2}, WeightFormat::kMxfp4);
  expect_slices(*original, tensors, kTinyA, {}, WeightFormat::kBf16);
  const auto published = open_weights(folder);
  EXPECT_EQ(original->tokenizer_json(), published->tokenizer_json());
  EXPECT_EQ(original->generation_config(), published->generation_config());
  EXPECT_EQ(original->chat_format(), "harmony");
  for (const char* key : {"model_type", "num_hidden_layers", "hidden_size", "intermediate_size", "num_local_experts",
                          "num_experts_per_tok", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                          "layer_types", "sliding_window", "max_position_embeddings", "rope_theta", "rms_norm_eps",
                          "swiglu_limit", "attention_bias", "tie_word_embeddings", "rope_scaling"}) {
    // As JSON numbers: 32 and 32.0 are the same.
    const json::Value& a = original->config().at(key);
    const json::Value& b = published->config().at(key);
    if (a.is_number()) {
      EXPECT_EQ(a.to_number<double>(), b.to_number<double>()) << key;
    } else if (a.is_object()) {
      for (const auto& [field, value] : b.get_object()) {
        if (value.is_number()) {
          EXPECT_EQ(a.at(field).to_number<double>(), value.to_number<double>()) << field;
        } else {
          EXPECT_EQ(a.at(field), value) << field;
        }
      }
    } else {
      EXPECT_EQ(a, b) << key;
    }
  }
}

TEST(Checkpoint, ABf16ExportLoadsTransposedAndQuantizesBack) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 5);
  const auto source =
      open_weights(synthetic::write_checkpoint(fresh_folder("bf16"), kTinyA, synthetic::bf16_tensors(tensors)));
  EXPECT_EQ(source->expert_format(), WeightFormat::kBf16);
  for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.tp = 2}}) {
    expect_slices(*source, tensors, kTinyA, plan, WeightFormat::kBf16);
    // These values came from mxfp4: rounding to nearest finds them again.
    expect_slices(*source, tensors, kTinyA, plan, WeightFormat::kMxfp4);
    expect_slices(*source, tensors, kTinyA, plan, WeightFormat::kFp8);
  }
}

std::string open_error(const std::string& path) {
  try {
    open_weights(path);
    return "";
  } catch (const StartError& error) {
    EXPECT_EQ(error.exit_code(), kExitBadFiles);
    return error.what();
  }
}

std::string load_error(const std::string& folder, const synthetic::Shape& shape, WeightFormat format) {
  try {
    const auto source = open_weights(folder);
    for (const WeightSpec& spec : synthetic::specs(shape)) load(*source, spec, {}, 0, format);
    return "";
  } catch (const StartError& error) {
    return error.what();
  }
}

TEST(Checkpoint, Fp8RefusesATileThatIsNotExactAndNamesIt) {
  TensorMap tensors = synthetic::published_tensors(kTinyA, 6);
  std::vector<std::uint8_t>& scales = tensors.at("model.layers.0.mlp.experts.down_proj_scales").bytes;
  std::vector<std::uint8_t>& blocks = tensors.at("model.layers.0.mlp.experts.down_proj_blocks").bytes;
  std::fill(scales.begin(), scales.end(), std::uint8_t{120});
  std::fill(blocks.begin(), blocks.end(), std::uint8_t{0x17});  // 6 and 0.5 everywhere
  // Expert 2, row 130 (tile row 1), group 9 (tile column 2).
  std::uint8_t& odd = scales[(2 * 192 + 130) * 10 + 9];
  odd = 120 + 14;
  EXPECT_EQ(
      load_error(synthetic::write_checkpoint(fresh_folder("spread14"), kTinyA, tensors), kTinyA, WeightFormat::kFp8),
      "");
  odd = 120 + 15;
  const std::string folder = synthetic::write_checkpoint(fresh_folder("spread15"), kTinyA, tensors);
  const std::string error = load_error(folder, kTinyA, WeightFormat::kFp8);
  EXPECT_NE(error.find("layers.0.mlp.down expert 2 tile (1, 2): group exponents span 15"), std::string::npos) << error;
  EXPECT_EQ(load_error(folder, kTinyA, WeightFormat::kMxfp4), "");
  EXPECT_EQ(load_error(folder, kTinyA, WeightFormat::kBf16), "");
}

// FP8 tiles start at the slice: cut at column 160, the group of exponent 15 more shares no tile with column 159.
TEST(Checkpoint, Fp8TilesAreBuiltFromTheSlicesOwnOrigin) {
  TensorMap tensors = synthetic::published_tensors(kTinyA, 7, 0);
  std::vector<std::uint8_t>& scales = tensors.at("model.layers.0.mlp.experts.down_proj_scales").bytes;
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = i % 10 < 5 ? 100 : 120;  // columns below 160, and the rest
  const auto source = open_weights(synthetic::write_checkpoint(fresh_folder("origin"), kTinyA, tensors));
  expect_slices(*source, tensors, kTinyA, {.tp = 2}, WeightFormat::kFp8);
  EXPECT_THROW(expect_slices(*source, tensors, kTinyA, {}, WeightFormat::kFp8), StartError);
}

TEST(Checkpoint, AScaleOf255IsRefusedInEveryFormatAndNamed) {
  TensorMap tensors = synthetic::published_tensors(kTinyA, 8);
  tensors.at("model.layers.0.mlp.experts.gate_up_proj_scales").bytes[(3 * 640 + 17) * 6 + 4] = 255;
  const std::string folder = synthetic::write_checkpoint(fresh_folder("nan"), kTinyA, tensors);
  for (const WeightFormat format : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
    const std::string error = load_error(folder, kTinyA, format);
    EXPECT_NE(error.find("gate_up_proj_scales: the scale of expert 3, row 17, group 4 is byte 255"), std::string::npos)
        << error;
  }
}

TEST(Checkpoint, AValueThatIsNotFiniteIsNotQuantized) {
  TensorMap tensors = synthetic::bf16_tensors(synthetic::published_tensors(kTinyA, 9));
  std::vector<std::uint8_t>& bytes = tensors.at("model.layers.0.mlp.experts.down_proj").bytes;
  bytes[2000] = 0x80;
  bytes[2001] = 0x7f;  // bf16 infinity
  const std::string folder = synthetic::write_checkpoint(fresh_folder("infinite"), kTinyA, tensors);
  EXPECT_NE(load_error(folder, kTinyA, WeightFormat::kMxfp4).find("not finite"), std::string::npos);
}

TEST(Checkpoint, MissingAndMisshapenTensorsAreNamedWithWhatWasExpected) {
  const TensorMap good = synthetic::published_tensors(kTinyA, 10);
  TensorMap tensors = good;
  tensors.erase("model.layers.0.self_attn.o_proj.bias");
  std::string error =
      load_error(synthetic::write_checkpoint(fresh_folder("missing"), kTinyA, tensors), kTinyA, WeightFormat::kMxfp4);
  EXPECT_NE(error.find("tensor model.layers.0.self_attn.o_proj.bias is missing"), std::string::npos) << error;

  tensors = good;
  tensors.at("model.norm.weight").dtype = "F16";
  error = load_error(synthetic::write_checkpoint(fresh_folder("dtype"), kTinyA, tensors), kTinyA, WeightFormat::kMxfp4);
  EXPECT_NE(error.find("tensor model.norm.weight is F16 [192], expected BF16 [192]"), std::string::npos) << error;

  tensors = good;
  tensors.at("model.layers.0.self_attn.q_proj.weight").shape = {192, 256};  // transposed
  error = load_error(synthetic::write_checkpoint(fresh_folder("shape"), kTinyA, tensors), kTinyA, WeightFormat::kMxfp4);
  EXPECT_NE(error.find("q_proj.weight is BF16 [192, 256], expected BF16 [256, 192]"), std::string::npos) << error;

  tensors = good;
  tensors["model.layers.0.mlp.experts.down_proj"] = good.at("model.norm.weight");
  error = load_error(synthetic::write_checkpoint(fresh_folder("both"), kTinyA, tensors), kTinyA, WeightFormat::kMxfp4);
  EXPECT_NE(error.find("which one counts?"), std::string::npos) << error;
}

TEST(Checkpoint, PathsThatHoldNoCheckpointSaySo) {
  EXPECT_NE(open_error("/nowhere/at/all").find("/nowhere/at/all: no such file or directory"), std::string::npos);
  const std::string folder = fresh_folder("paths");
  std::filesystem::create_directories(folder);
  EXPECT_NE(open_error(folder).find("has no config.json; found: nothing"), std::string::npos);
  synthetic::write_file(folder + "/config.json", synthetic::config_json(kTinyA));
  synthetic::write_file(folder + "/pytorch_model.bin", "PK");
  EXPECT_NE(open_error(folder).find("Only safetensors are read"), std::string::npos) << open_error(folder);
  synthetic::write_file(folder + "/model-00000-of-00001.safetensors", "x");
  EXPECT_NE(open_error(folder).find("no model.safetensors.index.json"), std::string::npos) << open_error(folder);
  synthetic::write_file(folder + "/model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_NE(open_error(folder).find("model.safetensors: not a whole safetensors file"), std::string::npos);
  EXPECT_NE(open_error(folder + "/config.json").find("name the folder it lies in"), std::string::npos);
  synthetic::write_file(folder + "/config.json", "{\"a\":1,\"a\":2}");
  EXPECT_NE(open_error(folder).find("config.json: "), std::string::npos);
  synthetic::write_file(folder + "/config.json", std::string((1u << 20) + 1, ' '));
  EXPECT_NE(open_error(folder).find("at most 1048576"), std::string::npos);
}

TEST(Checkpoint, AnotherQuantizationIsRefused) {
  const TensorMap tensors = synthetic::published_tensors(kTinyA, 11);
  const std::string folder = synthetic::write_checkpoint(fresh_folder("quantization"), kTinyA, tensors);
  const auto with_config = [&](std::string config) {
    synthetic::write_file(folder + "/config.json", config);
    return open_error(folder);
  };
  EXPECT_NE(with_config(R"({"model_type":"gpt_oss","quantization_config":{"quant_method":"fp8"}})")
                .find("quant_method \"fp8\""),
            std::string::npos);
  EXPECT_NE(with_config(R"({"model_type":"gpt_oss","quantization_config":{}})").find("missing"), std::string::npos);
  EXPECT_EQ(with_config(R"({"model_type":"gpt_oss"})"), "");
  synthetic::write_checkpoint(folder, kTinyA, synthetic::bf16_tensors(tensors));
  EXPECT_NE(with_config(synthetic::config_json(kTinyA, true)).find("no tensor is named"), std::string::npos);
}

class BadIndex : public ::testing::Test {
 protected:
  BadIndex() : folder_(fresh_folder("index")) {
    synthetic::write_checkpoint(folder_, kTinyA, synthetic::published_tensors(kTinyA, 12), 2);
    index_ = synthetic::read_file(folder_ + "/model.safetensors.index.json");
  }
  std::string with(const std::string& from, const std::string& to) {
    std::string changed = index_;
    const std::size_t at = changed.find(from);
    CHECK(at != std::string::npos, "{}", from);
    synthetic::write_file(folder_ + "/model.safetensors.index.json", changed.replace(at, from.size(), to));
    return open_error(folder_);
  }
  std::string folder_;
  std::string index_;
  const std::string kNorm = R"("model.norm.weight":")";
};

TEST_F(BadIndex, IsAcceptedWhenNothingIsWrong) { EXPECT_EQ(with("total_size", "total_size"), ""); }
TEST_F(BadIndex, APathOutOfTheFolderIsRefused) {
  for (const char* path : {"../model.safetensors", "/etc/model.safetensors", "a/model.safetensors", "..", "",
                           ".hidden.safetensors", "model.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    EXPECT_NE(with(R"("lm_head.weight":")", fmt::format(R"("x":"{}","lm_head.weight":")", path)).find("plain name"),
              std::string::npos)
        << path;
  }
}
TEST_F(BadIndex, AFileThatIsNotThereIsNamed) {
  EXPECT_NE(with(kNorm, R"("y":"model-00009.safetensors",)" + kNorm)
                .find("model-00009.safetensors: no such file, but the index"),
            std::string::npos);
}
TEST_F(BadIndex, ATensorThatItsShardLacksIsNamed) {
  EXPECT_NE(with(kNorm, R"("extra":"model-00000-of-00001.safetensors",)" + kNorm).find("extra should be in"),
            std::string::npos);
}
TEST_F(BadIndex, ATensorThatTheIndexDoesNotListIsNamed) {
  EXPECT_NE(with("model.norm.weight", "model.nrm.weight").find("does not list"), std::string::npos);
}
TEST_F(BadIndex, ATensorInAnotherShardThanListedIsNamed) {
  const std::size_t at = index_.find(kNorm) + kNorm.size();
  const std::string found = index_.substr(at, 11);  // "model-0000N"
  const std::string other = found.back() == '0' ? "model-00001" : "model-00000";
  EXPECT_NE(with(kNorm + found, kNorm + other).find("places in"), std::string::npos);
}
TEST_F(BadIndex, ATensorInTwoShardsIsRefused) {
  TensorMap two;
  two["model.norm.weight"] = synthetic::published_tensors(kTinyA, 12).at("model.norm.weight");
  synthetic::write_file(folder_ + "/extra.safetensors", synthetic::safetensors(two));
  const std::string error = with(kNorm, R"("z":"extra.safetensors",)" + kNorm);
  EXPECT_NE(error.find("model.norm.weight"), std::string::npos) << error;
}
TEST_F(BadIndex, AnIndexWithoutAMapIsRefused) {
  EXPECT_NE(with("weight_map", "weightmap").find("has no weight_map"), std::string::npos);
  EXPECT_NE(with(R"("model-00000)", R"(7,"q":"model-00000)").find("plain name"), std::string::npos);
}

}  // namespace
}  // namespace rose
