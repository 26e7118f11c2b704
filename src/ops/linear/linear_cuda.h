// The CUDA side of linear.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "ops/linear/linear_config.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::cuda {

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);

// With a given tile, for tests and benchmarks.
void linear_tiled(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y, const LinearTile& tile);

}  // namespace rose::ops::cuda
