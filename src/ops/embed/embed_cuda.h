// The CUDA side of embed.h; arguments have been checked. Rows lie at multiples of 16 bytes, hidden is a multiple of 8.
//
// A kernel cannot end the process the way the reference does, so an index out of range touches no memory: a token
// outside the vocabulary gives a row of zeros, a source beyond the slots leaves its token. Padding rows may rely on it.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

void resolve_tokens(const Stream& stream, const Tensor& sources, const Tensor& last_tokens, const Tensor& tokens);
void embed(const Stream& stream, const Tensor& tokens, const Tensor& embedding, const Tensor& out);

}  // namespace rose::ops::cuda
