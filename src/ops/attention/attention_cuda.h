// The CUDA side of attention.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "ops/attention/attention.h"

namespace rose::ops::cuda {

using ops::AttentionWork;
using ops::AttentionWorkShape;

std::size_t attention_work_bytes(const Stream& stream, const AttentionWorkShape& shape);

// Once a step and KV set: lists what each kernel has to do.
void plan_attention(const Stream& stream, const AttentionPlan& plan, const AttentionWork& work, int page_size);

struct AttentionCall {
  const Tensor& q;
  const KvLayer& kv;
  const AttentionPlan& plan;
  const AttentionWork& work;
  const Tensor& sinks;
  float scale;
  const Tensor& out;
};

// plan.rows_longest says which kernels are launched: more than DecodeConfig::kRowsMax new rows in one sequence need the
// prefill kernel; the decode kernel takes the other sequences, and finds nothing to do where all are long. Rows past
// the last sequence's are not written.
void attention(const Stream& stream, const AttentionCall& call);

}  // namespace rose::ops::cuda
