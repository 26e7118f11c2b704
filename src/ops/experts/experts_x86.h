// The fast CPU path of `experts`; sums as promised in linear_x86.h.
#pragma once

#include "ops/experts/experts.h"

namespace rose::ops::x86 {

void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& scratch, const Tensor& y);

// out[j] = gate * sigmoid(1.702 gate) * (up + 1) of the clamped pairs u[2j], u[2j + 1], j in [0, 32).
void swiglu_group(const float* u, float limit, float* out);

}  // namespace rose::ops::x86
