#include "weights/names.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace rose {
namespace {

struct Renaming {
  std::string_view published;
  std::string_view weight;
  std::string_view bias;
  int fused = -1;
};

constexpr Renaming kGlobal[] = {{"model.embed_tokens", "embedding.weight", ""},
                                {"model.norm", "norm.scale", ""},
                                {"lm_head", "unembedding.weight", ""}};

constexpr Renaming kLayer[] = {
    {"input_layernorm", "attn.norm.scale", ""},
    {"self_attn.q_proj", "attn.qkv.weight", "attn.qkv.bias", 0},
    {"self_attn.k_proj", "attn.qkv.weight", "attn.qkv.bias", 1},
    {"self_attn.v_proj", "attn.qkv.weight", "attn.qkv.bias", 2},
    {"self_attn.sinks", "attn.sinks", ""},
    {"self_attn.o_proj", "attn.out.weight", "attn.out.bias"},
    {"post_attention_layernorm", "mlp.norm.scale", ""},
    {"mlp.router", "mlp.gate.weight", "mlp.gate.bias"},
    {"mlp.experts.gate_up_proj", "mlp.mlp1_weight", "mlp.mlp1_bias"},
    {"mlp.experts.down_proj", "mlp.mlp2_weight", "mlp.mlp2_bias"},
};

}  // namespace

std::optional<OriginalName> original_name(std::string_view part) {
  for (const Renaming& row : kGlobal) {
    if (row.published == part) return OriginalName{std::string(row.weight), std::string(row.bias), row.fused};
  }
  constexpr std::string_view kPrefix = "model.layers.";
  if (!part.starts_with(kPrefix)) return std::nullopt;
  part.remove_prefix(kPrefix.size());
  const std::size_t dot = part.find('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  const std::string_view layer = part.substr(0, dot);
  if (!std::all_of(layer.begin(), layer.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
    return std::nullopt;
  for (const Renaming& row : kLayer) {
    if (row.published != part.substr(dot + 1)) continue;
    const auto named = [&](std::string_view name) {
      return name.empty() ? std::string() : fmt::format("block.{}.{}", layer, name);
    };
    return OriginalName{named(row.weight), named(row.bias), row.fused};
  }
  return std::nullopt;
}

}  // namespace rose
