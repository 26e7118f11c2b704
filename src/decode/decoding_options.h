// How tokens are chosen from logits, as a request asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rose {

struct DecodingOptions {
  float temperature = 1;                                        // 0: the most likely token
  float top_p = 1;                                              // (0, 1]
  float min_p = 0;                                              // [0, 1]
  int top_k = 0;                                                // 0: all
  float presence_penalty = 0;                                   // [-2, 2], over generated tokens
  float frequency_penalty = 0;                                  // [-2, 2], over generated tokens
  float repetition_penalty = 1;                                 // > 0, over prompt and generated tokens
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // token, -100..100
  std::optional<std::uint64_t> seed = {};                       // choice i of n draws from seed + i
  int top_logprobs = -1;                                        // -1: none; 0..20: the token's own and the k largest
  int max_tokens = 0;                                           // >= 1, already clamped to the context
  int min_tokens = 0;                                           // stop ids are masked before this many
  std::vector<std::int32_t> stop_tokens = {};                   // end the sequence; the id is delivered
  bool ignore_stop = false;                                     // benchmarks: run to max_tokens
};

}  // namespace rose
