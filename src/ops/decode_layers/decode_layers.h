// All layers of gpt-oss for a step of one row, in one kernel: the same as, for each layer,
//
//   x = norm(residual);  qkv = linear(x);  rope_append;  attention;  residual += linear(attended)
//   x = norm(residual);  route(x);  residual += experts(x)
//
// with keys and values appended at the row's slot. A GPU alone has it, and for the published width alone; elsewhere,
// and for more rows, the operations run one by one. Numbers differ from theirs in the last bits: x, attended and
// activations, and the residual that a norm reads, are rounded to bf16 as there; the residual's
// own sum and qkv are not.
//
// A row's result depends on nothing but the row, its context and the weights.
#pragma once

#include <cstddef>
#include <span>

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "ops/attention/attention.h"
#include "ops/experts/experts.h"
#include "ops/rope_append/rope_append.h"
#include "tensor/tensor.h"

namespace rose::ops {

struct DecodeLayer {
  const Weight* attention_norm = nullptr;  // [hidden]
  const Weight* qkv = nullptr;             // bf16
  const Weight* sinks = nullptr;           // [heads]
  const Weight* output = nullptr;          // bf16
  const Weight* mlp_norm = nullptr;        // [hidden]
  const Weight* router = nullptr;          // bf16
  const ExpertWeights* experts = nullptr;  // MXFP4, all of them
  int window = 0;                          // 0: none
  int kv_set = 0;                          // index into slots and plans
};

struct DecodeLayersShape {
  int hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0, experts = 0, experts_per_token = 0;
};

// Whether the stream's device has the kernel for these layers.
bool has_decode_layers(const Stream& stream, const DecodeLayersShape& shape, std::span<const DecodeLayer> layers);

std::size_t decode_layers_work_bytes();

struct DecodeLayersRow {
  Tensor position;                       // [1] i32, for RoPE
  std::span<const Tensor> slots;         // by KV set: [1] i32
  std::span<const AttentionPlan> plans;  // by KV set: context length, page table, first page of the one sequence
};

struct DecodeLayersNumbers {
  float epsilon = 0, attention_scale = 0, swiglu_limit = 0;
};

void decode_layers(const Stream& stream, std::span<const DecodeLayer> layers, const DecodeLayersRow& row,
                   const Rope& rope, const DecodeLayersNumbers& numbers,
                   KvCache& kv,              // bf16 or e4m3
                   void* work,               // decode_layers_work_bytes() of device memory, zeros at first
                   const Tensor& residual);  // [1, hidden] bf16, in and out

}  // namespace rose::ops
