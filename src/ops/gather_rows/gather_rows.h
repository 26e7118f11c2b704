// out[i] = x[rows[i]]
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops {

void gather_rows(const Stream& stream,
                 const Tensor& x,     // [n, width]
                 const Tensor& rows,  // [m] i32
                 const Tensor& out);  // [m, width], dtype of x

namespace ref {
void gather_rows(const Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out);
}

}  // namespace rose::ops
