// FP8 products on the GPU: y = x . W^T + bias with x and W in e4m3 beside their scales, sums in f32.
#pragma once

#include "device/stream.h"
#include "ops/linear/quantized_rows.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::cuda {

// weight: fp8, `in` a multiple of 16. x.q: rows at multiples of 16 bytes; x.scales: rows at multiples of 16 bytes, that
// is, allocated for a multiple of 4 rows. y: [rows, out] f32 or bf16. A row's result depends on that row alone, but one
// kernel serves up to 128 rows, another more, and their results may differ in the last bits.
void linear_fp8(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y);

// The kernel for many rows with tiles of 128 rows x n features, n 128 or 160: for tests and benchmarks.
void linear_fp8_tiled(const Stream& stream, const QuantizedRows& x, const Weight& weight, const Tensor& y, int n);

// x: [rows, columns] bf16, columns a multiple of 8, rows at multiples of 16 bytes (q: of 8).
void quantize_rows(const Stream& stream, const Tensor& x, const QuantizedRows& quantized);

}  // namespace rose::ops::cuda
