// The CUDA side of experts.h; arguments have been checked.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "ops/experts/experts.h"

namespace rose::ops::cuda {

// Scales of one MXFP4 weight as the FP8 products want them; device memory of prepared_bytes(), filled by prepare().
struct PreparedScales {
  const std::uint8_t* shifts = nullptr;
  const float* bases = nullptr;
  int out_padded = 0;
};
std::size_t prepared_bytes(const Weight& weight);
// Adds the number of tiles that FP8 cannot hold exactly to *inexact_tiles (device memory).
PreparedScales prepare(const Stream& stream, const Weight& weight, void* memory, int* inexact_tiles);

struct ExpertWorkShape {
  int rows_max = 0;
  int experts_per_token = 0;
  int experts_held = 0;
  int hidden = 0;
  int intermediate = 0;
};
std::size_t expert_work_bytes(const ExpertWorkShape& shape);

struct ExpertWork {
  ExpertWorkShape shape;
  void* memory = nullptr;
};

struct ExpertCall {
  const Tensor& x;  // [rows, hidden] bf16
  const Routing& routing;
  const ExpertWeights& weights;
  const PreparedScales& gate_up;
  const PreparedScales& down;
  float swiglu_limit;
  const ExpertWork& work;
  const Tensor& y;  // [rows, hidden] bf16
};

// Many rows: sort, quantize, both products in FP8, weighted sum.
void experts(const Stream& stream, const ExpertCall& call);

}  // namespace rose::ops::cuda
