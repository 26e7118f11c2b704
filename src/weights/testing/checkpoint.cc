#include "weights/testing/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/random.h"

namespace rose::synthetic {
namespace {

std::size_t elements(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t bits() { return random_bits(seed_, counter_++); }

  TensorBytes bf16(std::vector<std::int64_t> shape) {
    TensorBytes tensor{"BF16", std::move(shape), {}};
    const std::size_t count = elements(tensor.shape);
    tensor.bytes.resize(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const float unit = static_cast<float>(bits() >> 40) * 0x1p-24f;
      const std::uint16_t value = to_bf16(2.0f * unit - 1.0f).bits;
      tensor.bytes[2 * i] = static_cast<std::uint8_t>(value);
      tensor.bytes[2 * i + 1] = static_cast<std::uint8_t>(value >> 8);
    }
    return tensor;
  }

  TensorBytes bytes(std::vector<std::int64_t> shape, int low, int high) {
    TensorBytes tensor{"U8", std::move(shape), {}};
    tensor.bytes.resize(elements(tensor.shape));
    for (std::uint8_t& byte : tensor.bytes) {
      byte = static_cast<std::uint8_t>(low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)));
    }
    return tensor;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

void add_experts(TensorMap& tensors, Draw& draw, const std::string& name, std::int64_t experts, std::int64_t out,
                 std::int64_t in, int spread) {
  TensorBytes blocks = draw.bytes({experts, out, in / 32, 16}, 0, 255);
  for (std::size_t i = 0; i < 16; ++i) blocks.bytes[i] = i % 2 == 0 ? 0x00 : 0x88;  // a group of zeros, some of them -0
  tensors[name + "_blocks"] = std::move(blocks);
  tensors[name + "_scales"] = draw.bytes({experts, out, in / 32}, 118, 118 + spread);
  tensors[name + "_bias"] = draw.bf16({experts, out});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string original_tensor_name(std::string name) {
  const std::pair<const char*, const char*> kNames[] = {
      {"model.embed_tokens.weight", "embedding.weight"},
      {"model.norm.weight", "norm.scale"},
      {"lm_head.weight", "unembedding.weight"},
      {"model.layers.", "block."},
      {"input_layernorm.weight", "attn.norm.scale"},
      {"post_attention_layernorm.weight", "mlp.norm.scale"},
      {"self_attn.sinks", "attn.sinks"},
      {"self_attn.o_proj", "attn.out"},
      {"mlp.router", "mlp.gate"},
      {"mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks"},
      {"mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales"},
      {"mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"},
      {"mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks"},
      {"mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales"},
      {"mlp.experts.down_proj_bias", "mlp.mlp2_bias"},
  };
  for (const auto& [from, to] : kNames) name = replaced(name, from, to);
  return name;
}

// [experts, out, in] codes and scales to [experts, in, out] bf16.
TensorBytes dequantized(const TensorBytes& blocks, const TensorBytes& scales) {
  static constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::int64_t experts = blocks.shape[0], out = blocks.shape[1], in = blocks.shape[2] * 32;
  TensorBytes tensor{"BF16", {experts, in, out}, {}};
  tensor.bytes.resize(static_cast<std::size_t>(experts * in * out) * 2);
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) {
        const std::int64_t row = e * out + o;
        const std::uint8_t byte = blocks.bytes[static_cast<std::size_t>(row * in / 2 + i / 2)];
        const int code = i % 2 == 0 ? byte & 15 : byte >> 4;
        const int scale = scales.bytes[static_cast<std::size_t>(row * in / 32 + i / 32)];
        const double magnitude = std::ldexp(kMagnitudes[code & 7], scale - 127);
        const std::uint16_t bits = to_bf16(static_cast<float>(code >= 8 ? -magnitude : magnitude)).bits;
        const std::size_t at = static_cast<std::size_t>((e * in + i) * out + o) * 2;
        tensor.bytes[at] = static_cast<std::uint8_t>(bits);
        tensor.bytes[at + 1] = static_cast<std::uint8_t>(bits >> 8);
      }
    }
  }
  return tensor;
}

}  // namespace

TensorMap published_tensors(const Shape& shape, std::uint64_t seed, int spread) {
  TensorMap tensors;
  Draw draw(seed);
  const std::int64_t query = shape.heads * shape.head_dim, key = shape.kv_heads * shape.head_dim;
  tensors["model.embed_tokens.weight"] = draw.bf16({shape.vocabulary, shape.hidden});
  tensors["model.norm.weight"] = draw.bf16({shape.hidden});
  tensors["lm_head.weight"] = draw.bf16({shape.vocabulary, shape.hidden});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const auto& [name, rows] : {std::pair{"q_proj", query}, {"k_proj", key}, {"v_proj", key}}) {
      tensors[at + "self_attn." + name + ".weight"] = draw.bf16({rows, shape.hidden});
      tensors[at + "self_attn." + name + ".bias"] = draw.bf16({rows});
    }
    tensors[at + "self_attn.o_proj.weight"] = draw.bf16({shape.hidden, query});
    tensors[at + "self_attn.o_proj.bias"] = draw.bf16({shape.hidden});
    tensors[at + "self_attn.sinks"] = draw.bf16({shape.heads});
    tensors[at + "input_layernorm.weight"] = draw.bf16({shape.hidden});
    tensors[at + "post_attention_layernorm.weight"] = draw.bf16({shape.hidden});
    tensors[at + "mlp.router.weight"] = draw.bf16({shape.experts, shape.hidden});
    tensors[at + "mlp.router.bias"] = draw.bf16({shape.experts});
    add_experts(tensors, draw, at + "mlp.experts.gate_up_proj", shape.experts, 2 * shape.intermediate, shape.hidden,
                spread);
    add_experts(tensors, draw, at + "mlp.experts.down_proj", shape.experts, shape.hidden, shape.intermediate, spread);
  }
  return tensors;
}

TensorMap original_tensors(const TensorMap& published) {
  TensorMap tensors;
  for (const auto& [name, tensor] : published) {
    if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) continue;
    if (name.find("q_proj") == std::string::npos) {
      tensors[original_tensor_name(name)] = tensor;
      continue;
    }
    TensorBytes fused = tensor;  // q, k, v by rows
    for (const char* other : {"k_proj", "v_proj"}) {
      const TensorBytes& part = published.at(replaced(name, "q_proj", other));
      fused.shape[0] += part.shape[0];
      fused.bytes.insert(fused.bytes.end(), part.bytes.begin(), part.bytes.end());
    }
    tensors[replaced(replaced(name, "model.layers.", "block."), "self_attn.q_proj", "attn.qkv")] = std::move(fused);
  }
  return tensors;
}

TensorMap bf16_tensors(const TensorMap& published) {
  TensorMap tensors;
  for (const auto& [name, tensor] : published) {
    if (name.ends_with("_scales")) continue;
    if (!name.ends_with("_blocks")) {
      tensors[name] = tensor;
      continue;
    }
    const std::string stem = name.substr(0, name.size() - std::string("_blocks").size());
    tensors[stem] = dequantized(tensor, published.at(stem + "_scales"));
  }
  return tensors;
}

std::vector<WeightSpec> specs(const Shape& shape) {
  std::vector<WeightSpec> list;
  const std::int64_t query = shape.heads * shape.head_dim, key = shape.kv_heads * shape.head_dim;
  const auto vector = [&](std::string name, std::string part, std::int64_t size, Shard shard = Shard::kCopy) {
    list.push_back({.name = std::move(name),
                    .kind = WeightKind::kVector,
                    .out = size,
                    .in = 1,
                    .shard = shard,
                    .parts = {{std::move(part), size}}});
  };
  list.push_back({.name = "embedding",
                  .out = shape.vocabulary,
                  .in = shape.hidden,
                  .parts = {{"model.embed_tokens", shape.vocabulary}}});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string name = fmt::format("layers.{}.", layer), part = fmt::format("model.layers.{}.", layer);
    vector(name + "attention.norm", part + "input_layernorm", shape.hidden);
    list.push_back(
        {.name = name + "attention.qkv",
         .out = query + 2 * key,
         .in = shape.hidden,
         .bias = true,
         .shard = Shard::kRows,
         .parts = {
             {part + "self_attn.q_proj", query}, {part + "self_attn.k_proj", key}, {part + "self_attn.v_proj", key}}});
    vector(name + "attention.sinks", part + "self_attn.sinks", shape.heads, Shard::kRows);
    list.push_back({.name = name + "attention.output",
                    .out = shape.hidden,
                    .in = query,
                    .bias = true,
                    .shard = Shard::kColumns,
                    .parts = {{part + "self_attn.o_proj", shape.hidden}}});
    vector(name + "mlp.norm", part + "post_attention_layernorm", shape.hidden);
    list.push_back({.name = name + "mlp.router",
                    .out = shape.experts,
                    .in = shape.hidden,
                    .bias = true,
                    .parts = {{part + "mlp.router", shape.experts}}});
    list.push_back({.name = name + "mlp.gate_up",
                    .kind = WeightKind::kExperts,
                    .experts = shape.experts,
                    .out = 2 * shape.intermediate,
                    .in = shape.hidden,
                    .bias = true,
                    .shard = Shard::kExpertRows,
                    .parts = {{part + "mlp.experts.gate_up_proj", 2 * shape.intermediate}}});
    list.push_back({.name = name + "mlp.down",
                    .kind = WeightKind::kExperts,
                    .experts = shape.experts,
                    .out = shape.hidden,
                    .in = shape.intermediate,
                    .bias = true,
                    .shard = Shard::kExpertColumns,
                    .parts = {{part + "mlp.experts.down_proj", shape.hidden}}});
  }
  vector("final_norm", "model.norm", shape.hidden);
  list.push_back({.name = "unembedding",
                  .out = shape.vocabulary,
                  .in = shape.hidden,
                  .shard = Shard::kRows,
                  .parts = {{"lm_head", shape.vocabulary}}});
  return list;
}

std::string config_json(const Shape& shape, bool mxfp4) {
  std::string layer_types;
  for (int i = 0; i < shape.layers; ++i) {
    layer_types += fmt::format("{}\"{}_attention\"", i == 0 ? "" : ",", i % 2 == 0 ? "sliding" : "full");
  }
  return fmt::format(
      R"({{"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss","num_hidden_layers":{},"hidden_size":{},)"
      R"("intermediate_size":{},"num_local_experts":{},"num_experts_per_tok":4,"experts_per_token":4,)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},"attention_bias":true,)"
      R"("layer_types":[{}],"sliding_window":128,"max_position_embeddings":131072,"initial_context_length":4096,)"
      R"("rope_theta":150000,"rope_scaling":{{"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,)"
      R"("original_max_position_embeddings":4096,"truncate":false}},"rms_norm_eps":1e-05,"swiglu_limit":7.0,)"
      R"("hidden_act":"silu","tie_word_embeddings":false,"eos_token_id":2,"pad_token_id":1{}}})",
      shape.layers, shape.hidden, shape.intermediate, shape.experts, shape.heads, shape.kv_heads, shape.head_dim,
      shape.vocabulary, layer_types,
      mxfp4 ? R"(,"quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]})" : "");
}

std::string original_config_json(const Shape& shape) {
  return fmt::format(
      R"({{"num_hidden_layers":{},"num_experts":{},"experts_per_token":4,"vocab_size":{},"hidden_size":{},)"
      R"("intermediate_size":{},"swiglu_limit":7.0,"head_dim":{},"num_attention_heads":{},)"
      R"("num_key_value_heads":{},"sliding_window":128,"initial_context_length":4096,"rope_theta":150000,)"
      R"("rope_scaling_factor":32.0,"rope_ntk_alpha":1,"rope_ntk_beta":32}})",
      shape.layers, shape.experts, shape.vocabulary, shape.hidden, shape.intermediate, shape.head_dim, shape.heads,
      shape.kv_heads);
}

std::string safetensors(const TensorMap& tensors, const std::vector<std::string>& order) {
  std::vector<std::string> names = order;
  if (names.empty()) {
    for (const auto& entry : tensors) names.push_back(entry.first);
  }
  std::string header = "{", data;
  for (const std::string& name : names) {
    const TensorBytes& tensor = tensors.at(name);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                    name, tensor.dtype, fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(file.good(), "{}", path);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "{}", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string write_checkpoint(const std::string& folder, const Shape& shape, const TensorMap& tensors, int shards) {
  std::filesystem::create_directories(folder);
  const bool original = tensors.contains("embedding.weight");
  const bool mxfp4 =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) { return entry.first.ends_with("_blocks"); });
  write_file(folder + "/config.json", original ? original_config_json(shape) : config_json(shape, mxfp4));
  write_file(folder + "/generation_config.json", R"({"eos_token_id":[2,1,3]})");
  write_file(folder + "/tokenizer.json", R"({"version":"1.0"})");
  if (shards == 1) {
    write_file(folder + "/model.safetensors", safetensors(tensors));
    return folder;
  }
  std::vector<TensorMap> parts(static_cast<std::size_t>(shards));
  std::size_t next = 0;
  std::string map;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t shard = next++ % parts.size();
    parts[shard][name] = tensor;
    map += fmt::format(R"({}"{}":"model-{:05}-of-{:05}.safetensors")", map.empty() ? "" : ",", name, shard, shards - 1);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    write_file(fmt::format("{}/model-{:05}-of-{:05}.safetensors", folder, i, shards - 1), safetensors(parts[i]));
  }
  write_file(folder + "/model.safetensors.index.json",
             fmt::format(R"({{"metadata":{{"total_size":0}},"weight_map":{{{}}}}})", map));
  return folder;
}

}  // namespace rose::synthetic
