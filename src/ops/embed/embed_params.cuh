// What the launcher hands to the kernels of embed.h. Strides are in elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct ResolveTokensParams {
  const int* sources;      // [rows], -1: none
  const int* last_tokens;  // [slots]
  int* tokens;             // in and out: [rows]
  int rows, slots;
};
void launch_resolve_tokens(const ResolveTokensParams& params, cudaStream_t stream);

struct EmbedParams {
  const int* tokens;               // [rows]
  const std::uint16_t* embedding;  // [vocabulary, hidden] bf16, rows at multiples of 16 bytes
  void* out;                       // [rows, hidden] f32 or bf16, rows at multiples of 16 bytes
  std::int64_t embedding_stride, out_stride;
  int rows, vocabulary, hidden;  // hidden: a multiple of 8
  bool out_f32;
};
void launch_embed(const EmbedParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
