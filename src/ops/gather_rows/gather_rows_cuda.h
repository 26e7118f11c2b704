// The CUDA side of gather_rows.h; arguments have been checked. A row that does not exist gives zeros, since a kernel
// cannot end the process the way the reference does.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

void gather_rows(const Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out);

}  // namespace rose::ops::cuda
