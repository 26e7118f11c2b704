// Scales of expert weights in the order that the products read (experts_cuda.h), made once when the weights are loaded.
//
// MXFP4. With e = scale over the groups of a 128 x 256 tile that hold a weight other than zero, the base is 2^(e_max -
// 6) and a group's shift e - (e_max - 6), in [-8, 6] when the tile is exact. A tile that spans more is counted: there
// the FP8 products take its smallest groups at shift -8, and the caller decides what that means (spec: model.md 3.3).
#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 1024;  // one a group: 128 rows x 8

__device__ bool holds_weight(const uint4& codes) {
  return ((codes.x | codes.y | codes.z | codes.w) & 0x77777777u) != 0;
}

// grid: (in tiles, out tiles, experts)
__global__ void __launch_bounds__(kThreads) expert_prepare_kernel(const ExpertPrepare params) {
  __shared__ int largest, smallest;
  if (threadIdx.x == 0) largest = -1, smallest = 256;
  __syncthreads();
  const long row = blockIdx.y * 128 + threadIdx.x / 8, expert = blockIdx.z;
  const int group = blockIdx.x * 8 + threadIdx.x % 8, groups = params.in / 32;
  int scale = 0;
  bool counts = false;
  if (row < params.out_features && group < groups) {
    const long at = (expert * params.out_features + row) * groups + group;
    scale = params.stored_scales[at];
    counts = holds_weight(*reinterpret_cast<const uint4*>(params.payload + at * 16));
  }
  if (counts) {
    atomicMax(&largest, scale);
    atomicMin(&smallest, scale);
  }
  __syncthreads();
  const int base = largest < 0 ? 127 : max(1, largest - 6);  // an ordinary f32 in any case
  const long out_padded = gridDim.y * 128L;
  params.scales[((expert * gridDim.x + blockIdx.x) * out_padded + row) * 8 + threadIdx.x % 8] =
      static_cast<std::uint8_t>(counts ? scale : base);
  if (threadIdx.x == 0) {
    params.bases[(expert * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = __int_as_float(base << 23);
    if (largest >= 0 && largest - smallest > 14) atomicAdd(params.inexact_tiles, 1);
  }
}

// FP8: as stored.
__global__ void __launch_bounds__(kThreads) expert_bases_kernel(const ExpertPrepare params, int tiles) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < tiles) params.bases[i] = params.stored_bases[i];
}

}  // namespace

void launch_expert_prepare(const ExpertPrepare& params, cudaStream_t stream) {
  const int out_tiles = (params.out_features + 127) / 128;
  if (params.stored_bases != nullptr) {
    const int tiles = params.experts * out_tiles * ((params.in + 127) / 128);
    rose::cuda::launch(
        &expert_bases_kernel, "expert_bases",
        {.grid = dim3(static_cast<unsigned>((tiles + kThreads - 1) / kThreads)), .block = dim3(kThreads)}, stream,
        params, tiles);
    return;
  }
  const dim3 grid(static_cast<unsigned>((params.in + 255) / 256), static_cast<unsigned>(out_tiles),
                  static_cast<unsigned>(params.experts));
  rose::cuda::launch(&expert_prepare_kernel, "expert_prepare", {.grid = grid, .block = dim3(kThreads)}, stream, params);
}

}  // namespace rose::ops::cuda
