// What the launcher hands to the linear kernels, and the shapes both agree on.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct LinearParams {
  CUtensorMap x;              // [rows, in] bf16, boxes of kM x 64
  CUtensorMap weight;         // [out, in] bf16, boxes of kN x 64
  CUtensorMap y;              // [rows, out] bf16, boxes of 64 x kStoreColumns
  const std::uint16_t* bias;  // [out] bf16, or null
  int rows, out, in;
};

template <int kM_, int kN_>
struct LinearConfig {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kK = 64;               // bf16 elements: 128 bytes, the width of the swizzle
  static constexpr int kConsumers = kM / 64;  // warpgroups
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kStageBytes = (kM + kN) * kK * 2;
  static constexpr int kStoreColumns = kN % 64 == 0 ? 64 : 32;
  static constexpr bool kStoreSwizzled = kStoreColumns == 64;  // TMA swizzles whole rows of 128 bytes
  static constexpr int kStoreBytes = 64 * kStoreColumns * 2;   // one consumer, one chunk of columns
  static constexpr int kStages = (226 * 1024 - 2 * kConsumers * kStoreBytes) / kStageBytes;
  static constexpr int kGroupRows = 16;  // row tiles that share their W tiles while those are in L2
  static_assert(kM % 64 == 0 && kN % kStoreColumns == 0 && kStages >= 3);
};

// One instance per tile, each in its own file.
template <class Config>
void launch_linear(const LinearParams& params, int blocks, cudaStream_t stream);

}  // namespace rose::ops::cuda
