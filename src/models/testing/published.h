// config.json of the two published checkpoints (spec: model.md 1). For tests only.
#pragma once

#include <string_view>

#include "json/json.h"

namespace rose::testing {

// `size`: "20b" or "120b".
inline json::Value published_config(std::string_view size) {
  json::Value config = json::parse(R"({
    "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
    "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
    "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
    "num_attention_heads": 64, "num_experts_per_tok": 4, "num_key_value_heads": 8, "output_router_logits": false,
    "pad_token_id": 199999, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert":
      ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
    "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201088})")
                           .value();
  json::Object& object = config.as_object();
  const int layers = size == "20b" ? 24 : 36;
  object["num_hidden_layers"] = layers;
  object["num_local_experts"] = size == "20b" ? 32 : 128;
  json::Array types;
  for (int layer = 0; layer < layers; ++layer) {
    types.emplace_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  object["layer_types"] = types;
  return config;
}

}  // namespace rose::testing
