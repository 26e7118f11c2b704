// What a gpt-oss model holds, and the one list of it: loading, the memory report, conversion and tests all go through
// visit_weights (spec: model.md 2.2).
#pragma once

#include <functional>
#include <vector>

#include "models/gpt_oss/config.h"
#include "ops/experts/experts.h"
#include "weights/format.h"
#include "weights/spec.h"

namespace rose {

struct GptOssLayer {
  int index = 0;  // in the model
  int kv_set = 0;
  Weight attention_norm;  // [hidden]
  Weight qkv;             // [(heads + 2 kv_heads) * head_dim, hidden]: q, then k, then v
  Weight sinks;           // [heads]
  Weight output;          // [hidden, heads * head_dim]
  Weight mlp_norm;        // [hidden]
  Weight router;          // [experts, hidden]
  ops::ExpertWeights experts;
};

struct GptOssWeights {
  Weight embedding;  // [vocabulary, hidden]
  std::vector<GptOssLayer> layers;
  Weight final_norm;   // [hidden]
  Weight unembedding;  // [vocabulary, hidden]
};

// Calls visit(spec, slot) for every weight, in the order of the forward pass; resizes weights.layers first.
void visit_weights(const GptOssConfig& config, GptOssWeights& weights,
                   const std::function<void(const WeightSpec& spec, Weight& slot)>& visit);

}  // namespace rose
