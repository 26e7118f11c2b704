// The CUDA side of linear.h for few rows, bound by the bytes of the weight; arguments have been checked.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::cuda {

// Whether linear_small takes so many rows: 1 .. 64, `in` a multiple of 8, x within shared memory (in up to about
// 11000).
bool linear_small_fits(std::int64_t rows, std::int64_t in);

// x: [rows, in] bf16, rows 16-byte aligned; weight: bf16; y: [rows, out] f32 or bf16. A row's result depends on that
// row alone: not on the number of rows, nor on which of the two kernels below runs.
void linear_small(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);

// With a given kernel, for tests and benchmarks: `in` split over the warps of a block (up to 16 rows) or over the
// blocks of a cluster. False, and nothing done, where that kernel does not take the shape.
enum class LinearSmallKernel { kWarps, kCluster };
bool linear_small_with(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y,
                       LinearSmallKernel kernel);

}  // namespace rose::ops::cuda
