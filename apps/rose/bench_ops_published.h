// The best public time of an operation at gpt-oss's shapes on an H200, of the same number formats as ours.
#pragma once

#include <string>

#include "bench_ops_cases.h"

namespace rose {

struct PublicTime {
  double us = 0;  // 0: none known
  const char* source = "";
};

PublicTime public_attention_prefill(int tokens, int window);
PublicTime public_attention_decode(int sequences, int context, int window);
PublicTime public_experts(int experts, int rows, OpRouting routing);
PublicTime public_linear(int out, int rows);  // bf16

inline void set_public(OpCase& c, const PublicTime& time) {
  c.public_us = time.us;
  c.public_source = time.source;
}

}  // namespace rose
