// y_r = sum over the routed experts e held here of w_re * (W_down . a + b_down),   a = swiglu(W_gate_up . x +
// b_gate_up)
//
//   gate = min(u[2j], limit);  up = clamp(u[2j + 1], -limit, limit);  a_j = gate * sigmoid(1.702 gate) * (up + 1)
//
// The down bias is inside the weighting. Experts held elsewhere contribute zero. The sum over experts runs in the order
// of routing.experts, in f32, rounded once (spec: model.md 4, step 6).
//
// A row's result depends neither on the other rows of the step nor on the number of threads.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "ops/route/route.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

inline constexpr float kSwigluAlpha = 1.702f;

// The scales of an MXFP4 weight as the kernels of a GPU read them (experts_cuda.h); Weight::scales is empty there.
struct ExpertScales {
  Tensor scales;
  Tensor bases;
};

struct ExpertWeights {
  Weight gate_up;                    // [held, 2 * intermediate, hidden], gate and up rows interleaved
  Weight down;                       // [held, hidden, intermediate]
  std::int64_t first_expert = 0;     // global id of the first one held
  ExpertScales gate_up_scales = {};  // on a GPU
  ExpertScales down_scales = {};
  bool bf16_activations = false;  // on a GPU: never rounded to e4m3; exact, and slow for many rows
};

// On a GPU: bytes that prepare_expert_scales takes of an arena for a weight of this shape, 0 on the CPU.
std::size_t prepared_scale_bytes(const Stream& stream, const Weight& shape);
// From a weight with its scales as stored, which may go once the stream has passed this. Adds the number of MXFP4 tiles
// of 128 x 256 that FP8 cannot hold exactly to `inexact_tiles` (i32 [1], in device memory).
ExpertScales prepare_expert_scales(const Stream& stream, const Weight& stored, Arena& arena,
                                   const Tensor& inexact_tiles);

void experts(const Stream& stream,
             const Tensor& x,  // [rows, hidden] f32 or bf16
             const Routing& routing, const ExpertWeights& weights, float swiglu_limit,
             const Tensor& scratch,  // f32 [experts_scratch_elements(...)], aligned to 64 bytes
             const Tensor& y);       // [rows, hidden] f32 or bf16

// Scratch that `experts` needs for up to rows_max rows.
struct ExpertShape {
  std::int64_t rows_max = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t experts_held = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};
std::int64_t experts_scratch_elements(const Stream& stream, const ExpertShape& shape);

namespace ref {
void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& y);
}

}  // namespace rose::ops
