// The CUDA side of quantize_weight.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::cuda {

// `in` a multiple of 8; the payloads at multiples of 16 (bf16) and 8 bytes (fp8).
void quantize_weight(const Stream& stream, const Weight& from, const Weight& to, const Tensor& not_finite);

}  // namespace rose::ops::cuda
