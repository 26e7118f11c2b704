// residual += sum over ranks of delta;  out = residual / sqrt(mean(residual^2) + epsilon) * weight
//
// Computed in f32 including the product with weight, rounded once to out's dtype (spec: model.md 4, step 2).
#pragma once

#include "device/stream.h"
#include "parallel/communicator.h"
#include "tensor/tensor.h"

namespace rose::ops {

void reduce_add_rms_norm(const Stream& stream, Communicator& communicator,
                         const Tensor& delta,     // [rows, hidden] f32 or bf16, or empty: nothing to add, no reduction
                         const Tensor& residual,  // in and out: [rows, hidden] f32 or bf16
                         const Tensor& weight,    // [hidden] bf16
                         float epsilon,
                         const Tensor& out);  // [rows, hidden] f32 or bf16

namespace ref {
void reduce_add_rms_norm(const Stream& stream, Communicator& communicator, const Tensor& delta, const Tensor& residual,
                         const Tensor& weight, float epsilon, const Tensor& out);
}

}  // namespace rose::ops
