// Synthetic checkpoints for tests: gpt-oss-shaped tensors with contents drawn from a seed, written as the published
// layouts write them. Written from the layouts' description, not with the reader's code, so that the two check each
// other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weights/spec.h"

namespace rose::synthetic {

struct TensorBytes {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};
using TensorMap = std::map<std::string, TensorBytes>;

struct Shape {
  int layers = 2;
  int hidden = 192;
  int intermediate = 320;
  int experts = 4;
  int heads = 16;
  int kv_heads = 2;
  int head_dim = 64;
  int vocabulary = 256;
};

// The published layout's tensors with mxfp4 experts: all 16 codes, scale bytes that vary by at most `spread` within an
// expert, a group of zeros (some -0), biases and sinks.
TensorMap published_tensors(const Shape& shape, std::uint64_t seed, int spread = 6);

// The same weights in the original layout: other names, q, k, v fused.
TensorMap original_tensors(const TensorMap& published);

// The same weights as a bf16 export: experts dequantized, without suffix, transposed to [experts, in, out].
TensorMap bf16_tensors(const TensorMap& published);

// What a model of this shape asks for: names as in ModelSpec lists, parts by published name.
std::vector<WeightSpec> specs(const Shape& shape);

std::string config_json(const Shape& shape, bool mxfp4 = true);
std::string original_config_json(const Shape& shape);

// A safetensors file: header padded to 8, tensors in the order of the map by default, else as `order` says.
std::string safetensors(const TensorMap& tensors, const std::vector<std::string>& order = {});

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);

// config.json, generation_config.json, tokenizer.json and one model.safetensors, or `shards` of them with an index.
// Creates the folder; returns it.
std::string write_checkpoint(const std::string& folder, const Shape& shape, const TensorMap& tensors, int shards = 1);

}  // namespace rose::synthetic
