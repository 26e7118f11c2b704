// y = x . W^T + bias, accumulated in f32 (the reference: f64), rounded once.
//
// A row's result depends neither on the other rows of the step nor on the number of threads.
//
// On a GPU a product with an FP8 weight rounds x to e4m3 first (quantized_rows.h), into `scratch`. The CPU takes x as
// it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

void linear(const Stream& stream,
            const Tensor& x,              // [rows, in] f32 or bf16
            const Weight& weight,         // [out, in], bias optional
            const Tensor& y,              // [rows, out] f32 or bf16
            const Tensor& scratch = {});  // u8 [at least linear_scratch_bytes(...)], or empty where that is 0

// Scratch that `linear` needs for up to so many rows and inputs.
std::size_t linear_scratch_bytes(const Stream& stream, WeightFormat format, std::int64_t rows, std::int64_t in);

namespace ref {
void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);
}

}  // namespace rose::ops
