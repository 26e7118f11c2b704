// The CUDA side of linear.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "ops/linear/linear_config.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::cuda {

// x bf16, rows at multiples of 16 bytes, `in` a multiple of 8; weight bf16; y bf16 or f32. A row's result depends on
// that row alone, except that kernels differ by the number of rows (beyond 128, and for some weights up to 8; in f32
// one serves all), and so may the last bit of their results.
void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);

// With a given tile, for tests and benchmarks.
void linear_tiled(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, const LinearTile& tile);

}  // namespace rose::ops::cuda
