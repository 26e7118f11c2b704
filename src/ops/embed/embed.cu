// tokens[r] = last_tokens[sources[r]] where sources[r] >= 0;   out[r] = embedding[tokens[r]], exact in bf16 and f32
//
// Bound: bytes. At 8192 rows of 2880, 47 MB read and 47 MB (bf16) or 94 MB (f32) written: 24 or 36 us at the measured
// copy rate of 3.98 TB/s. A few rows cost one trip to memory for the tokens and one for the rows.
//
// Mapping: a block a row; a thread writes 16 bytes at a time, so it reads 16 bytes for bf16 and 8 for f32.
#include "device/cuda/launch.cuh"
#include "ops/embed/embed_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) resolve_tokens_kernel(const __grid_constant__ ResolveTokensParams params) {
  ptx::dependency_wait();
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row < params.rows) {
    const int source = params.sources[row];
    if (source >= 0 && source < params.slots) params.tokens[row] = params.last_tokens[source];
  }
  ptx::dependents_launch();
}

template <bool kOutF32>
__global__ void __launch_bounds__(kThreads) embed_kernel(const __grid_constant__ EmbedParams params) {
  constexpr int kColumns = kOutF32 ? 4 : 8;  // a thread's
  ptx::dependency_wait();
  const std::int64_t row = blockIdx.x;
  const int token = params.tokens[row];
  const bool known = token >= 0 && token < params.vocabulary;
  const std::uint16_t* from = params.embedding + (known ? token * params.embedding_stride : 0);
  for (int column = threadIdx.x * kColumns; column < params.hidden; column += kThreads * kColumns) {
    const std::int64_t to = row * params.out_stride + column;
    if constexpr (kOutF32) {
      uint2 bits = {0, 0};
      if (known) bits = *reinterpret_cast<const uint2*>(from + column);
      *reinterpret_cast<float4*>(static_cast<float*>(params.out) + to) = {
          ptx::bf16_low(bits.x), ptx::bf16_high(bits.x), ptx::bf16_low(bits.y), ptx::bf16_high(bits.y)};
    } else {
      uint4 bits = {0, 0, 0, 0};
      if (known) bits = *reinterpret_cast<const uint4*>(from + column);
      *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(params.out) + to) = bits;
    }
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_resolve_tokens(const ResolveTokensParams& params, cudaStream_t stream) {
  rose::cuda::launch(&resolve_tokens_kernel, "resolve_tokens",
                     {.grid = dim3(static_cast<unsigned>((params.rows + kThreads - 1) / kThreads)),
                      .block = dim3(kThreads),
                      .overlap_previous = true},
                     stream, params);
}

void launch_embed(const EmbedParams& params, cudaStream_t stream) {
  rose::cuda::launch(
      params.out_f32 ? &embed_kernel<true> : &embed_kernel<false>, "embed",
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .overlap_previous = true}, stream,
      params);
}

}  // namespace rose::ops::cuda
