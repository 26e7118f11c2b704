// The k largest of a row's logits (NaN first, ties to the lowest index), and softmax over those k.
//
// Bound: the bytes of the logits, 4 MB at 8192 rows of 128 (1 us); for few rows the latency of one dependent kernel.
//
// Mapping: a warp a row. Logits become unsigned keys of the same order, eight a lane; k times the warp's largest key
// is found, the lowest index that has it, and that key is struck out.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/route/route_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kHeld = RouteChoice::kExpertsMax / 32;
constexpr unsigned kAll = 0xffffffffu;
constexpr unsigned kNanKey = 0xffffffffu;

// Rises with the logit; equal for both zeros; above 0 for every logit, so that 0 means struck out.
__device__ inline unsigned key_of(float logit) {
  if (isnan(logit)) return kNanKey;
  const unsigned bits = __float_as_uint(logit + 0.f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(unsigned key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);  // kNanKey: 0x7fffffff, a NaN
}

__global__ void __launch_bounds__(32 * kWarps) route_choice_kernel(const RouteChoice params) {
  ptx::dependency_wait();
  const int lane = threadIdx.x % 32;
  const long row = static_cast<long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row < params.rows) {
    unsigned keys[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int expert = i * 32 + lane;
      keys[i] = expert < params.experts ? key_of(params.logits[row * params.experts + expert]) : 0;
    }
    float first = 0, mine = 0;  // lane j keeps the j-th chosen
    int chosen = 0;
    for (int j = 0; j < params.k; ++j) {
      unsigned largest = 0;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) largest = max(largest, keys[i]);
      largest = __reduce_max_sync(kAll, largest);
      unsigned expert = kAll;
#pragma unroll
      for (int i = kHeld - 1; i >= 0; --i) {
        if (keys[i] == largest) expert = static_cast<unsigned>(i * 32 + lane);
      }
      expert = __reduce_min_sync(kAll, expert);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (static_cast<unsigned>(i * 32 + lane) == expert) keys[i] = 0;
      }
      const float logit = logit_of(largest);
      if (j == 0) first = logit;
      if (lane == j) {
        mine = logit;
        chosen = static_cast<int>(expert);
      }
    }
    const float power = lane < params.k ? expf(mine - first) : 0.f;
    float sum = power;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
    if (lane < params.k) {
      params.chosen[row * params.chosen_stride + lane] = chosen;
      params.weights[row * params.weights_stride + lane] = power / sum;
    }
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_route_choice(const RouteChoice& params, cudaStream_t stream) {
  rose::cuda::launch(&route_choice_kernel, "route_choice",
                     {.grid = dim3(static_cast<unsigned>((params.rows + kWarps - 1) / kWarps)),
                      .block = dim3(32 * kWarps),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
