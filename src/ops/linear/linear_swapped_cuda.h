// The CUDA side of linear.h for few rows in bf16 and e4m3, and for f32 results; arguments have been checked.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "ops/linear/quantized_rows.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

// Blocks of a cluster that share the steps (128 bytes of `in`) of 128 features. `clusters_of(n)`: clusters of n blocks
// that run at once. Depends on the weight's shape alone, so that a row's result does not depend on the number of rows.
template <class ClustersOf>
int choose_linear_splits(std::int64_t out, int steps, const ClustersOf& clusters_of) {
  const std::int64_t tiles = (out + 127) / 128;
  for (int splits = 8; splits > 1; --splits) {
    if (splits <= steps && tiles <= clusters_of(splits)) return splits;
  }
  return 1;
}

namespace cuda {

// x: [rows, in] bf16, in a multiple of 8, rows at multiples of 16 bytes; y: [rows, out] f32 or bf16; weight: bf16. Any
// number of rows, made for up to 128. A row's result depends on that row alone.
void linear_swapped(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);
// `in` a multiple of 16; the rows of x.scales at multiples of 16 bytes.
void linear_swapped(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y);

}  // namespace cuda
}  // namespace rose::ops
