// y = x . W^T + bias, accumulated in f32 (the reference: f64), rounded once.
//
// A row's result depends neither on the other rows of the step nor on the number of threads.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

void linear(const Stream& stream,
            const Tensor& x,       // [rows, in] f32 or bf16
            const Weight& weight,  // [out, in], bias optional
            const Tensor& y);      // [rows, out] f32 or bf16

namespace ref {
void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);
}

}  // namespace rose::ops
