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
constexpr int kExpertsMax = ExpertSort::kExpertsMax;
static_assert(kExpertsMax % 32 == 0 && kExpertsMax <= kSortThreads);

// The narrowest shape of ROSE_EXPERT_SHAPES that holds the rows in as few parts as can be.
__device__ int narrowest_shape(int rows, int part_rows) {
  const int parts = (rows + part_rows - 1) / part_rows;
  int n = ((rows + parts - 1) / parts + 7) / 8 * 8;
  if (parts == 1 && n > 32) n = n <= 48 ? 48 : 64;
  if (parts == 2) n = max(n, 40);
  if (parts == 3) n = max(n, 48);
  if (parts == 4) n = max(n, 56);
  return expert_shape(parts, n);
}

// Sum over the experts before this thread's, of two counts at once; all threads of the block.
__device__ int2 sums_before(int2 mine, int2* warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int2 sum = mine;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int x = __shfl_up_sync(0xffffffffu, sum.x, offset), y = __shfl_up_sync(0xffffffffu, sum.y, offset);
    if (lane >= offset) sum.x += x, sum.y += y;
  }
  if (lane == 31 && warp < kExpertsMax / 32) warps[warp] = sum;
  __syncthreads();
  for (int w = 0; w < min(warp, kExpertsMax / 32); ++w) sum.x += warps[w].x, sum.y += warps[w].y;
  return {sum.x - mine.x, sum.y - mine.y};
}

// One block. Places within an expert's run are dealt by atomics, so they differ from launch to launch; no result
// depends on them, since a row's products are the same wherever it stands.
__global__ void __launch_bounds__(kSortThreads) expert_sort_kernel(const ExpertSort params) {
  __shared__ int counts[kExpertsMax], next[kExpertsMax];
  __shared__ int2 warps[kExpertsMax / 32];
  const int thread = threadIdx.x;
  if (thread < kExpertsMax) counts[thread] = 0;
  ptx::dependency_wait();
  ptx::dependents_launch();
  __syncthreads();
  const int entries = params.rows * params.k;
#pragma unroll 4
  for (int i = thread; i < entries; i += kSortThreads) {
    const int e = params.experts[i] - params.first_expert;
    if (e >= 0 && e < params.experts_held) atomicAdd(&counts[e], 1);
  }
  __syncthreads();
  constexpr int kUnit = ExpertSort::kRunAlignment;
  const int count = thread < kExpertsMax ? counts[thread] : 0, units = (count + kUnit - 1) / kUnit;
  const int tiles = (count + params.tile_rows - 1) / params.tile_rows;
  const int2 before = sums_before({units, tiles}, warps);
  if (thread < kExpertsMax) next[thread] = before.x * kUnit;
  if (thread == kExpertsMax - 1) *params.tile_count = before.y + tiles;
  for (int t = 0; t < tiles; ++t) {  // rows spread evenly
    const int begin = units * t / tiles * kUnit, end = min(units * (t + 1) / tiles * kUnit, count);
    params.tiles[before.y + t] = {thread, before.x * kUnit + begin, end - begin,
                                  narrowest_shape(end - begin, params.part_rows)};
  }
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < entries; i += kSortThreads) {
    const int e = params.experts[i] - params.first_expert;
    int position = -1;
    if (e >= 0 && e < params.experts_held) {
      position = atomicAdd(&next[e], 1);
      params.sorted_weights[position] = params.weights[i];
    }
    params.positions[i] = position;
  }
}

constexpr int kRowThreads = 256;

// A block a row; a warp takes groups of 128, four numbers a lane. The scale is the largest magnitude / 448.
__global__ void __launch_bounds__(kRowThreads) expert_quantize_kernel(const ExpertQuantize params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
  const long row = blockIdx.x;
  const int lane = threadIdx.x % 32, groups = (params.hidden + 127) / 128;
  // Inputs 4 lane.. of a step, 32 t + 8 w + 4 h.., stand at 32 w + 16 h + 4 t.. (experts_products_sm90.cuh).
  const int place = lane / 2 % 4 * 32 + lane % 2 * 16 + lane / 8 * 4;
  for (int group = threadIdx.x / 32; group < groups; group += kRowThreads / 32) {
    const int column = group * 128 + lane * 4;
    uint2 bits = {0, 0};
    if (column < params.hidden) bits = *reinterpret_cast<const uint2*>(params.x + row * params.hidden + column);
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
      *reinterpret_cast<std::uint32_t*>(params.sorted + (position * groups + group) * 128 + place) = packed;
      if (lane == 0) params.scales[static_cast<long>(group) * params.positions_stride + position] = scale;
    }
  }
}

// A block a row, eight numbers a thread; experts in the order of the routing, in f32, rounded once.
__global__ void __launch_bounds__(kRowThreads) expert_combine_kernel(const ExpertCombine params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
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
