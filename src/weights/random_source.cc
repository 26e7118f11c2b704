#include "weights/random_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "base/result.h"
#include "weights/random_fill/random_fill.h"

namespace rose {
namespace {

// What both sizes share of the published config.json.
constexpr std::string_view kGptOssConfig = R"({
  "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
  "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
  "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
  "num_attention_heads": 64, "num_experts_per_tok": 4, "num_key_value_heads": 8, "output_router_logits": false,
  "pad_token_id": 199999,
  "quantization_config": {
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
    "quant_method": "mxfp4"},
  "rms_norm_eps": 1e-05,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "rope_type": "yarn", "truncate": false},
  "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 201088})";

constexpr std::string_view kGenerationConfig = R"({
  "bos_token_id": 199998, "do_sample": true, "eos_token_id": [200002, 199999, 200012], "pad_token_id": 199999})";

json::Value gpt_oss_config(int layers, int experts) {
  json::Value config = json::parse(kGptOssConfig).value();
  json::Object& object = config.as_object();
  object["num_hidden_layers"] = layers;
  object["num_local_experts"] = experts;
  json::Array types;
  for (int layer = 0; layer < layers; ++layer) {
    types.emplace_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  object["layer_types"] = std::move(types);
  return config;
}

std::uint64_t key_of(std::uint64_t seed, std::string_view weight, std::string_view tensor) {
  std::uint64_t key = mix64(seed);
  for (const std::string_view text : {weight, tensor}) {
    for (const char c : text) key = mix64(key ^ static_cast<unsigned char>(c));
    key = mix64(key ^ 0x100);  // an end that no byte is
  }
  return key;
}

// random_bf16's scale for a uniform distribution around 0.
float scale_of(double standard_deviation) { return static_cast<float>(standard_deviation * std::sqrt(3.0) / 65536); }

// The scale byte b for which codes times 2^(b - 2 .. b + 2) come nearest to the standard deviation.
std::int32_t scale_byte(double standard_deviation) {
  constexpr double kCodeSquares = (0 + 0.25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8;  // mean over the magnitudes
  constexpr double kScaleSquares = (1.0 / 16 + 1.0 / 4 + 1 + 4 + 16) / 5;       // mean of 4^(-2 .. 2)
  const double exponent = std::log2(standard_deviation / std::sqrt(kCodeSquares * kScaleSquares));
  return 127 + std::clamp(static_cast<int>(std::lround(exponent)), -120, 120);
}

}  // namespace

RandomSource::RandomSource(std::string name, json::Value config, std::uint64_t seed, std::string tokenizer_json)
    : name_(std::move(name)),
      config_(std::move(config)),
      generation_config_(json::parse(kGenerationConfig).value()),
      seed_(seed),
      tokenizer_json_(std::move(tokenizer_json)) {}

std::string RandomSource::describe() const { return fmt::format("random {} (seed {})", name_, seed_); }

RandomRegion RandomSource::region(const WeightSpec& spec, RandomKind kind, std::string_view tensor) const {
  RandomRegion region;
  region.kind = kind;
  region.key = key_of(seed_, spec.name, tensor);
  const double inner = 1 / std::sqrt(static_cast<double>(spec.in));
  if (kind != RandomKind::kBf16) {
    region.exponent = scale_byte(inner);
  } else if (tensor == "bias") {
    region.scale = scale_of(spec.name.ends_with("router") ? 0.25 : 0.02);
  } else if (spec.kind == WeightKind::kVector && spec.name.ends_with("norm")) {
    region.center = 2 * 65536;
    region.scale = 0.5f / 65536;
  } else {
    region.scale = scale_of(spec.kind == WeightKind::kVector || spec.name == "embedding" ? 1 : inner);
  }
  return region;
}

Weight RandomSource::load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
                          const Stream& stream) {
  CHECK(arena.device() == stream.device(), "an arena on {}, a stream on {}", arena.device().name(),
        stream.device().name());
  const bool experts = spec.kind == WeightKind::kExperts;
  if (experts && format != WeightFormat::kMxfp4) {
    throw StartError(fmt::format("{}: {} experts are asked for; random weights have mxfp4 experts only", spec.name,
                                 weight_format_name(format)));
  }
  const WeightSlice slice = slice_of(spec, plan, rank);
  CHECK(spec.parts.size() == 1 || spec.experts == 0, "{}", spec.name);
  Weight weight = allocate_weight(spec, slice, experts ? WeightFormat::kMxfp4 : WeightFormat::kBf16, arena);

  // The slice of a tensor whose rows have `columns` units, of which it takes [skip, skip + take).
  const auto fill = [&](RandomKind kind, std::string_view tensor, const Tensor& to, std::int64_t columns,
                        std::int64_t skip, std::int64_t take) {
    RandomRegion part = region(spec, kind, tensor);
    part.matrices = std::max<std::int64_t>(1, weight.experts);
    part.units = take;
    part.matrix_stride = spec.out * columns;
    part.row_stride = columns;
    auto* memory = static_cast<std::byte*>(to.raw());
    std::int64_t rows_before = 0;
    for (std::size_t p = 0; p < spec.parts.size(); ++p) {
      const ShardRange rows = slice.rows[p];
      part.to = memory;
      part.rows = rows.size();
      part.first = (slice.experts.begin * spec.out + rows_before + rows.begin) * columns + skip;
      random_fill(stream, part);
      memory += to.bytes() / static_cast<std::size_t>(weight.out) * static_cast<std::size_t>(rows.size());
      rows_before += spec.parts[p].rows;
    }
  };
  if (experts) {
    const std::int64_t groups = spec.in / kMxfp4Group, first = slice.columns.begin / kMxfp4Group;
    fill(RandomKind::kCodes, "codes", weight.payload, groups, first, weight.in / kMxfp4Group);
    fill(RandomKind::kScales, "scales", weight.scales, groups, first, weight.in / kMxfp4Group);
  } else {
    fill(RandomKind::kBf16, "elements", weight.payload, spec.in, slice.columns.begin, weight.in);
  }
  if (slice.holds_bias) fill(RandomKind::kBf16, "bias", weight.bias, 1, 0, 1);
  return weight;
}

std::unique_ptr<WeightSource> open_random_weights(std::string_view size, std::uint64_t seed,
                                                  std::string tokenizer_json) {
  const bool small = size == "20b";
  if (!small && size != "120b") {
    throw StartError(fmt::format("random weights of size \"{}\": there are 20b and 120b", size));
  }
  return std::make_unique<RandomSource>(fmt::format("gpt-oss-{}", size),
                                        gpt_oss_config(small ? 24 : 36, small ? 32 : 128), seed,
                                        std::move(tokenizer_json));
}

}  // namespace rose
