// MXFP4 scales in the form that the FP8 products want (experts_prefill_sm90.cuh), made once when the weights are
// loaded: a power-of-two base for each tile of 128 x 128 weights, and for each group of 32 its exponent over that base.
//
// With e = scale - 127 over the groups of a tile that hold a weight other than zero, the base is 2^(e_max - 6) and the
// shift e - (e_max - 6) + 8, in 0..14 when the tile is exact. A tile that spans more is counted: its smallest groups
// are cut off at shift 0, and the caller decides what that means (spec: model.md 3.3).
#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 512;  // one a group: 128 rows x 4

__device__ bool holds_weight(const uint4& codes) {
  return ((codes.x | codes.y | codes.z | codes.w) & 0x77777777u) != 0;
}

// grid: (in blocks, out blocks, experts)
__global__ void __launch_bounds__(kThreads) expert_prepare_kernel(const ExpertPrepare params) {
  __shared__ int largest, smallest;
  if (threadIdx.x == 0) largest = -1, smallest = 256;
  __syncthreads();
  const long row = blockIdx.y * 128 + threadIdx.x / 4, expert = blockIdx.z;
  const int group = blockIdx.x * 4 + threadIdx.x % 4, groups = params.in / 32;
  const bool inside = row < params.out_features && group < groups;
  int scale = 0;
  bool counts = false;
  if (inside) {
    const long at = (expert * params.out_features + row) * groups + group;
    scale = params.scales[at];
    counts = holds_weight(*reinterpret_cast<const uint4*>(params.payload + at * 16));
  }
  if (counts) {
    atomicMax(&largest, scale);
    atomicMin(&smallest, scale);
  }
  __syncthreads();
  const int base = largest < 0 ? 127 : largest - 6;
  if (row < params.out_padded) {
    const int shift = counts ? max(0, scale - base + 8) : 8;
    params.shifts[((expert * gridDim.x + blockIdx.x) * params.out_padded + row) * 4 + threadIdx.x % 4] =
        static_cast<std::uint8_t>(shift);
  }
  if (threadIdx.x == 0) {
    params.bases[(expert * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = exp2f(static_cast<float>(base - 127));
    if (largest >= 0 && largest - smallest > 14) atomicAdd(params.inexact_tiles, 1);
  }
}

}  // namespace

void launch_expert_prepare(const ExpertPrepare& params, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((params.in + 127) / 128),
                  static_cast<unsigned>((params.out_padded + 127) / 128), static_cast<unsigned>(params.experts));
  rose::cuda::launch(&expert_prepare_kernel, "expert_prepare", {.grid = grid, .block = dim3(kThreads)}, stream, params);
}

}  // namespace rose::ops::cuda
