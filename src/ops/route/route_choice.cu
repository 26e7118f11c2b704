// The choice among given logits.
//
// Bound: the bytes of the logits, 4 MB at 8192 rows of 128 (1 us); for few rows the latency of one dependent kernel.
//
// Mapping: a warp a row. Logits become unsigned keys of the same order, eight a lane.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/choose.cuh"
#include "ops/route/route_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kWarps = 8;

__global__ void __launch_bounds__(32 * kWarps) route_choice_kernel(const RouteChoice params) {
  ptx::dependents_launch();
  ptx::dependency_wait();
  const int lane = threadIdx.x % 32;
  const long row = static_cast<long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= params.rows) return;
  unsigned keys[ptx::kHeldLogits];
#pragma unroll
  for (int i = 0; i < ptx::kHeldLogits; ++i) {
    const int expert = i * 32 + lane;
    keys[i] = expert < params.experts ? ptx::key_of(params.logits[row * params.experts + expert]) : 0;
  }
  ptx::choose_row(keys, params.k, params.chosen + row * params.chosen_stride,
                  params.weights + row * params.weights_stride);
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
