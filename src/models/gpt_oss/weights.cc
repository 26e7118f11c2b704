#include "models/gpt_oss/weights.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace rose {
namespace {

WeightSpec vector(std::string name, std::string tensor, std::int64_t size, Shard shard = Shard::kCopy) {
  return {.name = std::move(name),
          .kind = WeightKind::kVector,
          .out = size,
          .in = 1,
          .shard = shard,
          .parts = {{std::move(tensor), size}}};
}

WeightSpec matrix(std::string name, std::string tensor, std::int64_t out, std::int64_t in, bool bias = false,
                  Shard shard = Shard::kCopy) {
  return {.name = std::move(name),
          .kind = WeightKind::kMatrix,
          .out = out,
          .in = in,
          .bias = bias,
          .shard = shard,
          .parts = {{std::move(tensor), out}}};
}

WeightSpec dense(std::string name, std::string tensor, std::int64_t out, std::int64_t in, bool bias = false,
                 Shard shard = Shard::kCopy) {
  WeightSpec spec = matrix(std::move(name), std::move(tensor), out, in, bias, shard);
  spec.dense = true;
  return spec;
}

WeightSpec experts(std::string name, std::string tensor, std::int64_t count, std::int64_t out, std::int64_t in,
                   Shard shard) {
  return {.name = std::move(name),
          .kind = WeightKind::kExperts,
          .experts = count,
          .out = out,
          .in = in,
          .bias = true,
          .shard = shard,
          .parts = {{std::move(tensor), out}}};
}

WeightSpec fused_qkv(const GptOssConfig& config, const std::string& name, const std::string& tensor) {
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  WeightSpec spec = dense(name + "attention.qkv", "", q + 2 * kv, config.hidden, config.attention_bias, Shard::kRows);
  spec.parts = {{tensor + "self_attn.q_proj", q}, {tensor + "self_attn.k_proj", kv}, {tensor + "self_attn.v_proj", kv}};
  return spec;
}

}  // namespace

void visit_weights(const GptOssConfig& config, GptOssWeights& weights,
                   const std::function<void(const WeightSpec&, Weight&)>& visit) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t intermediate = config.intermediate;
  const std::int64_t attended = std::int64_t{config.heads} * config.head_dim;
  weights.layers.resize(static_cast<std::size_t>(config.layers));

  visit(matrix("embedding", "model.embed_tokens", config.vocabulary, hidden), weights.embedding);
  for (int i = 0; i < config.layers; ++i) {
    GptOssLayer& layer = weights.layers[static_cast<std::size_t>(i)];
    const std::string name = fmt::format("layers.{}.", i);
    const std::string tensor = fmt::format("model.layers.{}.", i);
    visit(vector(name + "attention.norm", tensor + "input_layernorm", hidden), layer.attention_norm);
    visit(fused_qkv(config, name, tensor), layer.qkv);
    visit(vector(name + "attention.sinks", tensor + "self_attn.sinks", config.heads, Shard::kRows), layer.sinks);
    visit(dense(name + "attention.output", tensor + "self_attn.o_proj", hidden, attended, config.attention_bias,
                Shard::kColumns),
          layer.output);
    visit(vector(name + "mlp.norm", tensor + "post_attention_layernorm", hidden), layer.mlp_norm);
    visit(matrix(name + "mlp.router", tensor + "mlp.router", config.experts, hidden, true), layer.router);
    visit(experts(name + "mlp.gate_up", tensor + "mlp.experts.gate_up_proj", config.experts, 2 * intermediate, hidden,
                  Shard::kExpertRows),
          layer.experts.gate_up);
    visit(experts(name + "mlp.down", tensor + "mlp.experts.down_proj", config.experts, hidden, intermediate,
                  Shard::kExpertColumns),
          layer.experts.down);
  }
  visit(vector("final_norm", "model.norm", hidden), weights.final_norm);
  visit(dense("unembedding", "lm_head", config.vocabulary, hidden), weights.unembedding);
}

}  // namespace rose
