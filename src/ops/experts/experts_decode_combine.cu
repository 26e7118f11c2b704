// y_r = sum of row r's weighted results, experts in the order of the routing, in f32, rounded once. Latency-bound: a
// row of 2880 at 4 experts is 46 KB, so a row is cut over several blocks.
#include "device/cuda/launch.cuh"
#include "ops/experts/experts_decode_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kCombineThreads = 128;
constexpr int kCombineColumns = kCombineThreads * 4;

__global__ void __launch_bounds__(kCombineThreads) expert_decode_combine_kernel(const ExpertDecodeCombine params) {
  ptx::dependency_wait();
  const long row = blockIdx.y;
  const int column = blockIdx.x * kCombineColumns + threadIdx.x * 4;
  if (column < params.hidden) {
    float4 part[ExpertDecodeLimits::kTop];
#pragma unroll
    for (int i = 0; i < ExpertDecodeLimits::kTop; ++i) {
      part[i] = {0, 0, 0, 0};
      if (i >= params.k) continue;
      const long entry = row * params.k + i;
      const int expert = params.experts[entry] - params.first_expert;
      if (expert < 0 || expert >= params.experts_held) continue;
      part[i] = *reinterpret_cast<const float4*>(params.weighted + entry * params.hidden + column);
    }
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < ExpertDecodeLimits::kTop; ++i) {
      sum.x += part[i].x, sum.y += part[i].y, sum.z += part[i].z, sum.w += part[i].w;
    }
    *reinterpret_cast<uint2*>(params.y + row * params.hidden + column) = {ptx::pack_bf16(sum.x, sum.y),
                                                                          ptx::pack_bf16(sum.z, sum.w)};
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_expert_decode_combine(const ExpertDecodeCombine& params, cudaStream_t stream) {
  const auto segments = static_cast<unsigned>((params.hidden + kCombineColumns - 1) / kCombineColumns);
  rose::cuda::launch(&expert_decode_combine_kernel, "experts decode combine",
                     {.grid = dim3(segments, static_cast<unsigned>(params.rows)),
                      .block = dim3(kCombineThreads),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
