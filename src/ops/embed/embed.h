// out[r] = embedding[tokens[r]]
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops {

// Where sources[r] >= 0, tokens[r] = last_tokens[sources[r]]: the id that the previous step sampled, which the host may
// not have seen yet. Elsewhere tokens[r] stays.
void resolve_tokens(const Stream& stream,
                    const Tensor& sources,      // [rows] i32, -1: none
                    const Tensor& last_tokens,  // [slots] i32
                    const Tensor& tokens);      // in and out: [rows] i32

void embed(const Stream& stream,
           const Tensor& tokens,     // [rows] i32, each in [0, vocabulary)
           const Tensor& embedding,  // [vocabulary, hidden] bf16
           const Tensor& out);       // [rows, hidden] f32 or bf16

namespace ref {
void resolve_tokens(const Stream& stream, const Tensor& sources, const Tensor& last_tokens, const Tensor& tokens);
void embed(const Stream& stream, const Tensor& tokens, const Tensor& embedding, const Tensor& out);
}  // namespace ref

}  // namespace rose::ops
