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
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

inline constexpr float kSwigluAlpha = 1.702f;

struct ExpertWeights {
  Weight gate_up;                 // [held, 2 * intermediate, hidden], gate and up rows interleaved
  Weight down;                    // [held, hidden, intermediate]
  std::int64_t first_expert = 0;  // global id of the first one held
};

void experts(const Stream& stream,
             const Tensor& x,  // [rows, hidden] f32 or bf16
             const Routing& routing, const ExpertWeights& weights, float swiglu_limit,
             const Tensor& scratch,  // f32 [experts_scratch_elements(...)], aligned to 64 bytes
             const Tensor& y);       // [rows, hidden] f32 or bf16

// Scratch that `experts` needs for up to rows_max rows.
std::int64_t experts_scratch_elements(std::int64_t rows_max, std::int64_t experts_per_token, std::int64_t intermediate,
                                      std::int64_t hidden);

namespace ref {
void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& y);
}

}  // namespace rose::ops
