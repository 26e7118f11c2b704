// What the launcher hands to the FP8 kernels for many rows and to the quantizing kernel.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct LinearFp8Params {
  CUtensorMap x;               // [rows, in] e4m3, boxes of 128 x 128
  CUtensorMap weight;          // [out, in] e4m3, boxes of kN x 128
  CUtensorMap x_scales;        // [groups, rows] f32, boxes of 1 x 128
  const float* weight_scales;  // [ceil(out / 128), groups]
  const std::uint16_t* bias;   // [out] bf16, or null
  void* y;                     // [rows, out] f32 or bf16, rows y_stride elements apart
  long y_stride;
  bool y_is_f32;
  bool y_pieces;  // bf16 y: eight features, the first a multiple of 8, may be stored at once
  int rows, out, in;
};

template <int kN_>
struct LinearFp8Config {
  static constexpr int kM = 128;
  static constexpr int kN = kN_;
  static constexpr int kK = 128;  // bytes: the width of the swizzle, and of a scale
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 384;
  static constexpr int kStageBytes = (kM + kN) * kK + kM * 4;
  static constexpr int kStoreColumns = 32;
  static constexpr int kStoreRow = kStoreColumns * 2 + 16;  // bytes; eight rows fall into different banks
  static constexpr int kStoreBytes = kConsumers * 64 * kStoreRow;
  static constexpr int kStages = (226 * 1024 - kStoreBytes) / kStageBytes;
  static constexpr int kGroupRows = 32;  // row tiles that share W tiles while those are in L2
  static_assert(kN % kStoreColumns == 0 && kStages >= 4);
};

// Instances in files of their own.
template <class Config>
void launch_linear_fp8(const LinearFp8Params& params, int blocks, cudaStream_t stream);

struct QuantizeParams {
  const std::uint16_t* x;  // [rows, columns] bf16, rows x_stride elements apart
  std::uint8_t* q;         // [rows, columns] e4m3
  float* scales;           // [groups, scales_stride]
  long x_stride, q_stride, scales_stride;
  int rows, columns;
};
void launch_quantize_rows(const QuantizeParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
