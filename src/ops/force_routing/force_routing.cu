// The k experts of each row, by the formulas of force_routing.h.
//
// Bound: the launch. A row's choices depend on each other, so a thread takes a row; the table of shares lies in the
// kernel's parameters. For benchmarks only: it adds a launch to every layer.
#include "device/cuda/launch.cuh"
#include "ops/force_routing/force_routing_params.cuh"
#include "ops/ptx/barrier.cuh"

namespace rose::ops::cuda {
namespace {

__global__ void __launch_bounds__(ForceRoutingParams::kThreads)
    force_routing_kernel(const __grid_constant__ ForceRoutingParams params) {
  ptx::dependency_wait();  // the router's own ids must not come after these
  const int row = blockIdx.x * ForceRoutingParams::kThreads + threadIdx.x;
  if (row < params.rows) {
    choose_forced(params.pattern, params.layer, static_cast<std::uint32_t>(row), params.k,
                  params.chosen + row * params.chosen_stride);
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_force_routing(const ForceRoutingParams& params, cudaStream_t stream) {
  constexpr int kThreads = ForceRoutingParams::kThreads;
  rose::cuda::launch(&force_routing_kernel, "force_routing",
                     {.grid = dim3(static_cast<unsigned>((params.rows + kThreads - 1) / kThreads)),
                      .block = dim3(kThreads),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
