// The experts' activation (ops/experts/experts.h): gate * sigmoid(1.702 gate) * (up + 1), both clamped.
#pragma once

#include "ops/ptx/convert.cuh"

namespace rose::ptx {

__device__ inline float swiglu(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;  // NaN stays NaN
  up = up > limit ? limit : up < -limit ? -limit : up;
  const float sigmoid = __fdividef(1.f, 1.f + exp2_fast(-1.702f * 1.44269504f * gate));
  return gate * sigmoid * (up + 1.f);
}

}  // namespace rose::ptx
