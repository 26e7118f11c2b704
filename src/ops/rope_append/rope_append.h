// Rotates q and k by position (YaRN, half-split pairs (t, t + head_dim / 2)) and appends k and v to the paged cache.
#pragma once

#include <vector>

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "tensor/tensor.h"

namespace rose::ops {

// YaRN of model.md 4, step 4: frequency(t) in radians a position, and the factor on both cos and sin.
struct RopeConfig {
  int head_dim = 64;
  double theta = 150000;
  double factor = 32;  // 1: plain RoPE
  double beta_fast = 32;
  double beta_slow = 1;
  double original_positions = 4096;
  bool truncate = false;  // gpt-oss: bounds stay real numbers
};

struct Rope {
  explicit Rope(const RopeConfig& config);
  std::vector<float> frequencies;  // [head_dim / 2]
  float concentration = 1;         // 0.1 ln(factor) + 1
  float query_factor = 1;          // on q alone, before it is rounded: attention's scale (kScaleInQuery)
  Tensor table;                    // on a GPU: f32 copy of frequencies
};

void rope_append(const Stream& stream,
                 const Tensor& qkv,        // [rows, (heads + 2 * kv_heads) * head_dim] f32 or bf16
                 const Tensor& positions,  // [rows] i32
                 const Tensor& slots,      // [rows] i32, page * page_size + offset
                 const Rope& rope,
                 KvLayer& kv,       // out: row r of keys and values at slots[r]; f32, bf16 or e4m3
                 const Tensor& q);  // out: [rows, heads, head_dim], rotated

namespace ref {
void rope_append(const Stream& stream, const Tensor& qkv, const Tensor& positions, const Tensor& slots,
                 const Rope& rope, KvLayer& kv, const Tensor& q);
}

}  // namespace rose::ops
