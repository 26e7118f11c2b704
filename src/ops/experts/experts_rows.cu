// What surrounds the two products: sorting rows by expert, quantizing them into their places, adding the results up.
//
// All three are bound by memory or latency: at 8192 rows of 2880 with 4 experts a row, quantize writes 94 MB and
// combine reads 189 MB.
#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kExpertsMax = 256;

// One block. Places within an expert's run are dealt by atomics, so they differ from launch to launch; no result
// depends on them, since a row's products are the same wherever it stands.
__global__ void __launch_bounds__(kSortThreads) expert_sort_kernel(const ExpertSort params) {
  __shared__ int counts[kExpertsMax], starts[kExpertsMax + 1], first_tiles[kExpertsMax + 1];
  ptx::dependency_wait();
  for (int e = threadIdx.x; e < params.experts_held; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  const int entries = params.rows * params.k;
  for (int i = threadIdx.x; i < entries; i += kSortThreads) {
    const int e = params.experts[i] - params.first_expert;
    if (e >= 0 && e < params.experts_held) atomicAdd(&counts[e], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    starts[0] = first_tiles[0] = 0;
    for (int e = 0; e < params.experts_held; ++e) {
      starts[e + 1] = starts[e] + (counts[e] + ExpertSort::kRunAlignment - 1) / ExpertSort::kRunAlignment *
                                      ExpertSort::kRunAlignment;
      first_tiles[e + 1] = first_tiles[e] + (counts[e] + ExpertSort::kTileRows - 1) / ExpertSort::kTileRows;
    }
    *params.tile_count = first_tiles[params.experts_held];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < params.experts_held; e += kSortThreads) {
    for (int t = first_tiles[e], row = 0; t < first_tiles[e + 1]; ++t, row += ExpertSort::kTileRows) {
      params.tiles[t] = {e, starts[e] + row, min(ExpertSort::kTileRows, counts[e] - row), 0};
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < params.experts_held; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += kSortThreads) {
    const int e = params.experts[i] - params.first_expert;
    int position = -1;
    if (e >= 0 && e < params.experts_held) {
      position = starts[e] + atomicAdd(&counts[e], 1);
      params.sorted_weights[position] = params.weights[i];
    }
    params.positions[i] = position;
  }
  ptx::dependents_launch();
}

constexpr int kRowThreads = 256;

// A block a row; a warp takes groups of 128, four numbers a lane. The scale is the largest magnitude / 448.
__global__ void __launch_bounds__(kRowThreads) expert_quantize_kernel(const ExpertQuantize params) {
  ptx::dependency_wait();
  const long row = blockIdx.x;
  const int lane = threadIdx.x % 32, groups = (params.hidden + 127) / 128;
  for (int group = threadIdx.x / 32; group < groups; group += kRowThreads / 32) {
    const int column = group * 128 + lane * 4;
    const bool inside = column < params.hidden;
    uint2 bits = {0, 0};
    if (inside) bits = *reinterpret_cast<const uint2*>(params.x + row * params.hidden + column);
    const float v[4] = {ptx::bf16_low(bits.x), ptx::bf16_high(bits.x), ptx::bf16_low(bits.y), ptx::bf16_high(bits.y)};
    float largest = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    // Below 1e-30 the reciprocal of the scale would overflow: such groups become zeros.
    const float scale = largest > 1e-30f ? largest / 448.f : 1.f, inverse = 1.f / scale;
    const std::uint32_t packed = ptx::pack_e4m3(v[0] * inverse, v[1] * inverse) |
                                 static_cast<std::uint32_t>(ptx::pack_e4m3(v[2] * inverse, v[3] * inverse)) << 16;
    for (int i = 0; i < params.k; ++i) {
      const long position = params.positions[row * params.k + i];
      if (position < 0) continue;
      if (inside) *reinterpret_cast<std::uint32_t*>(params.sorted + position * params.hidden + column) = packed;
      if (lane == 0) params.scales[static_cast<long>(group) * params.positions_stride + position] = scale;
    }
  }
  ptx::dependents_launch();
}

// A block a row, eight numbers a thread; experts in the order of the routing, in f32, rounded once.
__global__ void __launch_bounds__(kRowThreads) expert_combine_kernel(const ExpertCombine params) {
  ptx::dependency_wait();
  const long row = blockIdx.x;
  for (int column = threadIdx.x * 8; column < params.hidden; column += kRowThreads * 8) {
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < params.k; ++i) {
      const long position = params.positions[row * params.k + i];
      if (position < 0) continue;
      const uint4 bits = *reinterpret_cast<const uint4*>(params.weighted + position * params.hidden + column);
      sum[0] += ptx::bf16_low(bits.x), sum[1] += ptx::bf16_high(bits.x);
      sum[2] += ptx::bf16_low(bits.y), sum[3] += ptx::bf16_high(bits.y);
      sum[4] += ptx::bf16_low(bits.z), sum[5] += ptx::bf16_high(bits.z);
      sum[6] += ptx::bf16_low(bits.w), sum[7] += ptx::bf16_high(bits.w);
    }
    *reinterpret_cast<uint4*>(params.y + row * params.hidden + column) = {
        ptx::pack_bf16(sum[0], sum[1]), ptx::pack_bf16(sum[2], sum[3]), ptx::pack_bf16(sum[4], sum[5]),
        ptx::pack_bf16(sum[6], sum[7])};
  }
  ptx::dependents_launch();
}

rose::cuda::LaunchShape row_shape(int rows) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(kRowThreads), .overlap_previous = true};
}

}  // namespace

void launch_expert_sort(const ExpertSort& params, cudaStream_t stream) {
  rose::cuda::launch(&expert_sort_kernel, "expert_sort",
                     {.grid = dim3(1), .block = dim3(kSortThreads), .overlap_previous = true}, stream, params);
}

void launch_expert_quantize(const ExpertQuantize& params, cudaStream_t stream) {
  rose::cuda::launch(&expert_quantize_kernel, "expert_quantize", row_shape(params.rows), stream, params);
}

void launch_expert_combine(const ExpertCombine& params, cudaStream_t stream) {
  rose::cuda::launch(&expert_combine_kernel, "expert_combine", row_shape(params.rows), stream, params);
}

}  // namespace rose::ops::cuda
