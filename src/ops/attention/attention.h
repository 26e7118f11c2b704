// Grouped-query attention over the paged cache, causal, with an optional sliding window and a sink in every
// denominator:
//
//   s_ij = scale * q_i . k_j                      over visible j: i - window < j <= i (window 0: all j <= i)
//   p_ij = exp(s_ij - M) / (sum_j exp(s_ij - M) + exp(sink_h - M))
//   out_i = sum_j p_ij v_j
//
// Query head h reads KV head h / (heads / kv_heads). The sink is raw: not scaled, no value vector, once per (row, head)
// (spec: model.md 4, step 5).
#pragma once

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "tensor/tensor.h"

namespace rose::ops {

// What the kernels of a GPU need beside a plan: lists that they make, pieces of split contexts. One for each KV set,
// zero at first; the CPU needs none.
struct AttentionWorkShape {
  int rows_max = 0;
  int sequences_max = 0;
  int kv_heads = 0;
};
struct AttentionWork {
  AttentionWorkShape shape;
  void* memory = nullptr;  // attention_work_bytes(shape) on the stream's device
};
std::size_t attention_work_bytes(const Stream& stream, const AttentionWorkShape& shape);  // 0 on the CPU

// What a step looks like to the layers of one KV set; made once per step, used by each of its layers.
struct AttentionPlan {
  int window = 0;
  int sequences = 0;
  int rows = 0;
  int rows_longest = 0;     // largest number of new rows of one sequence
  int context_longest = 0;  // largest context length
  // A sequence may see positions, before its own new rows, that another one's new rows fill: keys and values must not
  // be read before all rows are appended. (Else a GPU reads them ahead.)
  bool reads_own_rows = true;
  Tensor row_offsets;       // [sequences + 1] i32: rows of sequence s
  Tensor context_lengths;   // [sequences] i32: positions in KV after this step's rows are appended
  Tensor page_table;        // [sequences, pages_max] i32: entry p is logical page first_pages[s] + p
  Tensor first_pages;       // [sequences] i32: logical page of entry 0 (earlier ones were recycled)
  AttentionWork work = {};  // on a GPU
};

// Once a step and KV set, before its layers: the GPU lists what each of its kernels has to do. On a GPU neither the
// kernels nor their launches depend on the numbers in the plan's tensors, so a captured step stays valid.
void plan_attention(const Stream& stream, const AttentionPlan& plan, int page_size);

// exp(kScaleInQuery * q.k) = 2^(q.k): for a q that has been multiplied by the scale and log2(e) before it was rounded,
// which spares a GPU's prefill an instruction a score.
inline constexpr float kScaleInQuery = 0.693147182f;

// Row r of sequence s has position context_lengths[s] - rows_of(s) + (r - row_offsets[s]).
void attention(const Stream& stream,
               const Tensor& q,    // [rows, heads, head_dim] f32 or bf16, rotated
               const KvLayer& kv,  // f32, bf16 or e4m3
               const AttentionPlan& plan,
               const Tensor& sinks,  // [heads] bf16
               float scale,
               const Tensor& out);  // [rows, heads * head_dim]

namespace ref {
void attention(const Stream& stream, const Tensor& q, const KvLayer& kv, const AttentionPlan& plan, const Tensor& sinks,
               float scale, const Tensor& out);
}

}  // namespace rose::ops
