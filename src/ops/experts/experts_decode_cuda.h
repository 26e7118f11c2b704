// The path of experts_cuda.h for few rows: MXFP4 weights exactly as stored, bf16 activations.
#pragma once

#include <cstddef>

#include "device/stream.h"
#include "ops/experts/experts.h"

namespace rose::ops::cuda {

inline constexpr int kExpertDecodeRowsMax = 64;

// Whether experts_decode takes these weights: MXFP4, both widths multiples of 32 and at most 2880.
bool experts_decode_takes(const ExpertWeights& weights);

struct ExpertDecodeShape {
  int rows_max = 0;
  int experts_per_token = 0;  // at most 8
  int hidden = 0;
  int intermediate = 0;
};
std::size_t experts_decode_work_bytes(const ExpertDecodeShape& shape);

struct ExpertDecodeCall {
  const Tensor& x;  // [rows, hidden] bf16, magnitudes below 2^64
  const Routing& routing;
  const ExpertWeights& weights;  // scales as prepare_scales leaves them
  float swiglu_limit;
  const ExpertDecodeShape& shape;
  void* work;       // device memory of experts_decode_work_bytes(shape), aligned to 256 bytes
  const Tensor& y;  // [rows, hidden] bf16
};

// Up to kExpertDecodeRowsMax rows. Rounds to bf16 between the two products and at the end, nowhere else; the same rows
// give the same bits in every launch.
void experts_decode(const Stream& stream, const ExpertDecodeCall& call);

}  // namespace rose::ops::cuda
