// The CUDA side of attention.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "ops/attention/attention.h"

namespace rose::ops::cuda {

struct PrefillAttention {
  const Tensor& q;
  const KvLayer& kv;
  const AttentionPlan& plan;
  const Tensor& tiles;  // [tiles, 2] i32 on the device: sequence, first row within it
  const Tensor& sinks;
  float scale;
  const Tensor& out;
  bool polynomial = true;  // a quarter of the exponentials on the FMA units
};

void attention_prefill(const Stream& stream, const PrefillAttention& call);

}  // namespace rose::ops::cuda
