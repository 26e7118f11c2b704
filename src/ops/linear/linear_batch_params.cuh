// What the launcher hands to the kernels for decoding batches, and the shapes both agree on.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct LinearBatchParams {
  CUtensorMap weight;         // [out, in] bf16, boxes of kFeatures x 64
  CUtensorMap x;              // [rows, in] bf16, boxes of rows x 64
  const std::uint16_t* bias;  // [out] bf16, or null
  std::uint16_t* y;  // [rows, out] bf16, rows y_stride elements apart; an even feature and its next in one store
  long y_stride;
  int rows, out;
  int steps;  // of 64 along `in`
};

template <int kRows_, int kFeatures_>
struct LinearBatchConfig {
  static constexpr int kRows = kRows_;          // at most: 64 a warpgroup
  static constexpr int kFeatures = kFeatures_;  // of a tile
  static constexpr int kStepColumns = 64;       // 128 bytes, the width of the swizzle
  static constexpr int kConsumers = kRows * 2;  // threads
  static constexpr int kThreads = kConsumers + 32;
  static constexpr int kGroups = kFeatures / 8;  // all rows x 8 features: four sums a thread
  static constexpr int kOwned = kGroups / 2;     // groups that each of the two blocks adds up
  static constexpr int kReceivedBytes = kOwned * kConsumers * 16;
  static constexpr int kWeightBytes = kFeatures * kStepColumns * 2;
  static constexpr int kXBytes = kRows * kStepColumns * 2;
  static constexpr int kSharedMax = 227 * 1024 - 1024 - 512;
  static constexpr int kStages = (kSharedMax - kReceivedBytes) / (kWeightBytes + kXBytes);
  static_assert(kRows % 64 == 0 && kFeatures % 16 == 0 && kStages >= 4);
};

template <class Config>
void launch_linear_batch(const LinearBatchParams& params, cudaStream_t stream);
// How many of its clusters run at once.
template <class Config>
int linear_batch_clusters();

}  // namespace rose::ops::cuda
