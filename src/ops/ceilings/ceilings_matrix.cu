// D[64, 256] += A[64, k] . B[k, 256]^T again and again, from tiles of random numbers in shared memory
//
// Bound: the tensor cores, under whatever clock and power the card keeps: datasheets promise 989 TFLOP/s in bf16 and
// 1979 in e4m3; library products of 8192 x 8192 x 8192 reached 789 and 1386 on an H200.
//
// Mapping: one block on each SM; its two warpgroups multiply their own 64 rows by the same 256 columns, as a product's
// consumers do, with four tiles to rotate over so that operands toggle as they do in real work. A group of four
// instructions is in flight while the next one is issued.
#include "device/cuda/launch.cuh"
#include "ops/ceilings/ceilings_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {
namespace {

using C = CeilingsConfig;
constexpr int kThreads = C::kWarpgroups * 128;
constexpr int kInstructionsOfRow = C::kRowBytes / 32;  // an instruction reads 32 bytes of each row

// Random bits with the exponent kept near one: no NaN, no overflow, half of all bits toggle.
__device__ std::uint32_t random_word(std::uint32_t i, bool e4m3) {
  std::uint32_t bits = i * 0x9e3779b1u + 0x85ebca6bu;
  bits = (bits ^ (bits >> 16)) * 0x21f0aaadu;
  bits = (bits ^ (bits >> 15)) * 0x735a2d97u;
  bits ^= bits >> 15;
  // bf16: s 0111.1... e = 0b0111'1xxx (2^-7 .. 1); e4m3: e = 0b01xx (2^-3 .. 1).
  return e4m3 ? (bits & 0x9f9f9f9fu) | 0x20202020u : (bits & 0x83ff83ffu) | 0x3c003c00u;
}

template <class Mma, bool kE4m3>
__global__ void __launch_bounds__(kThreads, 1) matrix_kernel(int iterations, float* sink) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  auto* words = reinterpret_cast<std::uint32_t*>(shared);
  for (int i = threadIdx.x; i < C::kSharedBytes / 4; i += kThreads) {
    words[i] = random_word(static_cast<std::uint32_t>(i) + blockIdx.x * 0x10001u, kE4m3);
  }
  ptx::fence_async_shared();
  __syncthreads();

  constexpr int kStageBytes = C::kTileRows * C::kRowBytes, kGroupBytes = 64 * C::kRowBytes;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const std::uint32_t base = ptx::shared_address(shared);
  const std::uint64_t a = ptx::swizzle128_descriptor(base + group * kGroupBytes);
  const std::uint64_t b = ptx::swizzle128_descriptor(base + C::kWarpgroups * kGroupBytes);
  float d[C::kColumns / 2];
#pragma unroll
  for (int i = 0; i < C::kColumns / 2; ++i) d[i] = 0;
  for (int i = 0; i < iterations; ++i) {
    const std::uint64_t stage = static_cast<std::uint64_t>(i % C::kStages) * (kStageBytes / 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kInstructionsOfRow; ++k) Mma::ss(d, a + stage + 2 * k, b + stage + 2 * k, 1);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < C::kColumns / 2; ++i) sum += d[i];
  sink[blockIdx.x * kThreads + threadIdx.x] = sum;
}

}  // namespace

void launch_matrix(bool e4m3, int iterations, float* sink, int blocks, cudaStream_t stream) {
  rose::cuda::launch(
      e4m3 ? &matrix_kernel<ptx::WgmmaE4m3<C::kColumns>, true> : &matrix_kernel<ptx::WgmmaBf16<C::kColumns>, false>,
      "matrix ceiling",
      {.grid = dim3(static_cast<unsigned>(blocks)),
       .block = dim3(kThreads),
       .shared_bytes = static_cast<std::size_t>(C::kSharedBytes)},
      stream, iterations, sink);
}

}  // namespace rose::ops::cuda
