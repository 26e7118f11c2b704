// A bf16 matrix as FP8: every tile of 128 x 128 under the smallest power of two that leaves its largest magnitude
// within e4m3, values rounded to nearest, ties to even (weights/fp8/fp8.h). The GPU gives the same bits as the CPU.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

void quantize_weight(const Stream& stream,
                     const Weight& from,         // bf16 [out, in]; on a GPU `in` a multiple of 8
                     const Weight& to,           // fp8, the same shape: payload and scales are written, its bias is not
                     const Tensor& not_finite);  // i32 [1]: grows by the number of values that are infinite or NaN;
                                                 // `to` is then undefined

namespace ref {
void quantize_weight(const Stream& stream, const Weight& from, const Weight& to, const Tensor& not_finite);
}

}  // namespace rose::ops
