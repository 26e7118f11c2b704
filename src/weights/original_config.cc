#include "weights/original_config.h"

#include "base/result.h"

namespace rose {

bool is_original_config(const json::Object& config) {
  return !config.contains("model_type") && config.contains("num_experts") && config.contains("num_hidden_layers");
}

json::Object published_config(const json::Object& original, const std::string& path) {
  const auto number = [&](const char* key) {
    const json::Value* value = original.if_contains(key);
    if (value == nullptr || !value->is_number()) {
      throw StartError(fmt::format("{}: \"{}\" is {}", path, key, value == nullptr ? "missing" : "not a number"));
    }
    return *value;
  };
  const auto number_or = [&](const char* key, json::Value otherwise) {
    return original.contains(key) ? number(key) : otherwise;
  };
  const json::Value layers = number("num_hidden_layers");
  if (!layers.is_int64() || layers.get_int64() < 1 || layers.get_int64() > 1000) {
    throw StartError(fmt::format("{}: \"num_hidden_layers\" is {}", path, json::serialize(layers)));
  }
  json::Array layer_types;
  for (std::int64_t i = 0; i < layers.get_int64(); ++i) {
    layer_types.emplace_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  const json::Value context = number("initial_context_length");
  const json::Value factor = number("rope_scaling_factor");
  const double positions = context.to_number<double>() * factor.to_number<double>();
  if (!(positions >= 1 && positions <= 1e9)) {
    throw StartError(fmt::format("{}: initial_context_length * rope_scaling_factor is {}", path, positions));
  }

  json::Object config;
  config["model_type"] = "gpt_oss";
  config["architectures"] = json::Array{"GptOssForCausalLM"};
  config["layer_types"] = std::move(layer_types);
  for (const char* key :
       {"num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size", "head_dim", "num_attention_heads",
        "num_key_value_heads", "sliding_window", "initial_context_length", "rope_theta"}) {
    config[key] = number(key);
  }
  config["num_local_experts"] = number("num_experts");
  config["num_experts_per_tok"] = number("experts_per_token");
  config["experts_per_token"] = number("experts_per_token");
  config["max_position_embeddings"] = static_cast<std::int64_t>(positions);
  // The original reader's constants and defaults.
  config["swiglu_limit"] = number_or("swiglu_limit", 7.0);
  config["rms_norm_eps"] = 1e-5;
  config["attention_bias"] = true;
  config["hidden_act"] = "silu";
  config["tie_word_embeddings"] = false;
  config["rope_scaling"] = json::Object{{"rope_type", "yarn"},
                                        {"factor", factor},
                                        {"beta_fast", number_or("rope_ntk_beta", 32.0)},
                                        {"beta_slow", number_or("rope_ntk_alpha", 1.0)},
                                        {"original_max_position_embeddings", context},
                                        {"truncate", false}};
  return config;
}

}  // namespace rose
