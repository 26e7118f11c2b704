// The CUDA side of reduce_add_rms_norm.h after the all-reduce: the addition and the norm of one rank.
//
//   residual += delta;  out = residual / sqrt(mean(residual^2) + epsilon) * weight
//
// Computed in f32 including the product with weight, rounded once to bf16; the norm is of the residual as stored.
// hidden is a multiple of 8, at most 8192; rows lie at multiples of 16 bytes.
#pragma once

#include "device/stream.h"
#include "ops/linear/quantized_rows.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

void add_rms_norm(const Stream& stream,
                  const Tensor& delta,     // [rows, hidden] bf16, already summed over ranks; or empty: nothing to add
                  const Tensor& residual,  // in and out: [rows, hidden] f32 or bf16
                  const Tensor& weight,    // [hidden] bf16
                  float epsilon,
                  const Tensor& out);  // [rows, hidden] bf16

// The output once more, as FP8 products read it: quantized.q[r, c] * scales[c / 128, r] is out[r, c] within half a unit
// of e4m3; the rows of q lie at multiples of 8 bytes.
void add_rms_norm(const Stream& stream, const Tensor& delta, const Tensor& residual, const Tensor& weight,
                  float epsilon, const Tensor& out, const QuantizedRows& quantized);

}  // namespace rose::ops::cuda
