// What the launcher hands to the kernel of reduce_add_rms_norm_cuda.h. Strides are in elements; rows of everything lie
// at multiples of 16 bytes, those of q at multiples of 8.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct AddRmsNormParams {
  static constexpr int kHiddenMax = 8192;
  static constexpr int kGroup = 128;  // columns that share a scale

  const std::uint16_t* delta;   // [rows, hidden] bf16, or null: nothing to add
  void* residual;               // in and out: [rows, hidden] f32 or bf16
  const std::uint16_t* weight;  // [hidden] bf16
  std::uint16_t* out;           // [rows, hidden] bf16
  std::uint8_t* q;              // [rows, hidden] e4m3, or null
  float* scales;                // [groups, scales_stride]
  std::int64_t delta_stride, residual_stride, out_stride, q_stride, scales_stride;
  int rows, hidden;  // hidden: a multiple of 8, at most kHiddenMax
  float epsilon;
  bool residual_f32;
};
void launch_add_rms_norm(const AddRmsNormParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
