// config.json of a gpt-oss checkpoint: every field that decides what is computed, checked once (spec: model.md 1).
//
// Spellings of the published files and of files that newer transformers write (`rope_parameters`, `swiglu_alpha`) are
// read alike; the loader gives original/config.json in the published spelling.
#pragma once

#include <vector>

#include "json/json.h"
#include "ops/rope_append/rope_append.h"

namespace rose {

struct GptOssConfig {
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 64;
  int experts = 0;
  int experts_per_token = 0;
  int vocabulary = 0;
  int positions_max = 0;
  bool attention_bias = true;  // of q, k, v and output; the router and the experts always have one
  float epsilon = 1e-5f;       // of every RMSNorm
  float swiglu_limit = 7;
  std::vector<int> windows;  // by layer: visible positions, self included; 0: all earlier ones
  ops::RopeConfig rope;

  float attention_scale() const;  // head_dim ^ -1/2
};

bool is_gpt_oss_config(const json::Value& config);

// Throws StartError naming the field, what it holds and what is expected.
GptOssConfig read_gpt_oss_config(const json::Value& config);

}  // namespace rose
