// The CUDA side of linear.h for a decoding batch: up to 128 rows, bf16 throughout; arguments have been checked.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

inline constexpr int kBatchRowsMin = 9;  // below, cuda::linear_swapped is faster

// Features of a tile, which a cluster of two blocks has: the most at which nearly every multiprocessor has a block, and
// all run at once. 0: the shape does not suit the kernel. `clusters_of(features)`: how many run at once. Depends on the
// weight's shape alone, so that a row's result does not depend on the number of rows.
template <class ClustersOf>
int choose_linear_batch_features(std::int64_t out, std::int64_t in, int multiprocessors,
                                 const ClustersOf& clusters_of) {
  for (const int features : {80, 48}) {
    const std::int64_t tiles = (out + features - 1) / features;
    if (in > 64 && tiles <= clusters_of(features) && 8 * tiles >= 3 * multiprocessors) return features;
  }
  return 0;
}

namespace cuda {

// The choice for this weight on the stream's device.
int linear_batch_features(const Stream& stream, const Weight& weight);

// x: [rows, in] bf16, 1 to 128 rows at multiples of 16 bytes, in a multiple of 8 and more than 64; y: [rows, out] bf16,
// rows and `out` multiples of 2 elements; weight: bf16; features: 48 or 80. A row's result depends on that row alone.
void linear_batch(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, int features);

}  // namespace cuda
}  // namespace rose::ops
