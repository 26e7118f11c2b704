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

// Of kBatch entries, kSortThreads apart: the expert among those held, or -1. All loads before the first use.
constexpr int kBatch = 8;
__device__ void read_experts(const ExpertSort& params, int begin, int entries, int (&chosen)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int entry = begin + i * kSortThreads;
    chosen[i] = entry < entries ? params.experts[entry] : -1;
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int e = chosen[i] - params.first_expert;
    chosen[i] = chosen[i] >= 0 && e >= 0 && e < params.experts_held ? e : -1;
  }
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
  for (int begin = thread; begin < entries; begin += kBatch * kSortThreads) {
    int chosen[kBatch];
    read_experts(params, begin, entries, chosen);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (chosen[i] >= 0) atomicAdd(&counts[chosen[i]], 1);
    }
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
  for (int begin = thread; begin < entries; begin += kBatch * kSortThreads) {
    int chosen[kBatch];
    float weights[kBatch];
    read_experts(params, begin, entries, chosen);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int entry = begin + i * kSortThreads;
      weights[i] = entry < entries ? params.weights[entry] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int entry = begin + i * kSortThreads;
      if (entry >= entries) continue;
      const int position = chosen[i] >= 0 ? atomicAdd(&next[chosen[i]], 1) : -1;
      params.positions[entry] = position;
      if (position >= 0) params.sorted_weights[position] = weights[i];
    }
  }
}

// Of one row: its places in the sorted order, -1 where there is none.
__device__ void read_positions(const int* positions, long row, int k, int (&places)[ExpertSort::kTop]) {
#pragma unroll
  for (int i = 0; i < ExpertSort::kTop; ++i) places[i] = i < k ? positions[row * k + i] : -1;
}

constexpr int kQuantizeThreads = 128;

// A block a row; a warp takes groups of 256, eight numbers a lane. The scale is the largest magnitude / 448.
__global__ void __launch_bounds__(kQuantizeThreads) expert_quantize_kernel(const ExpertQuantize params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
  const long row = blockIdx.x;
  const int lane = threadIdx.x % 32, steps = (params.hidden + 127) / 128;
  int places[ExpertSort::kTop];
  read_positions(params.positions, row, params.k, places);
  // Inputs 8 l.. of a step, 32 t + 8 w.., stand at 32 w + 4 t.. and 32 w + 16 + 4 t.. (experts_products_sm90.cuh).
  const int within = lane % 4 * 32 + lane % 16 / 4 * 4;
  for (int group = threadIdx.x / 32; group * 2 < steps; group += kQuantizeThreads / 32) {
    const int column = group * 256 + lane * 8, step = group * 2 + lane / 16;
    uint4 bits = {0, 0, 0, 0};
    if (column < params.hidden) bits = *reinterpret_cast<const uint4*>(params.x + row * params.hidden + column);
    const float v[8] = {ptx::bf16_low(bits.x), ptx::bf16_high(bits.x), ptx::bf16_low(bits.y), ptx::bf16_high(bits.y),
                        ptx::bf16_low(bits.z), ptx::bf16_high(bits.z), ptx::bf16_low(bits.w), ptx::bf16_high(bits.w)};
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    // Below 1e-30 the reciprocal of the scale would overflow: such groups become zeros.
    const float scale = largest > 1e-30f ? largest / 448.f : 1.f, inverse = 1.f / scale;
    std::uint32_t packed[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      packed[i] = ptx::pack_e4m3(v[i * 4] * inverse, v[i * 4 + 1] * inverse) |
                  static_cast<std::uint32_t>(ptx::pack_e4m3(v[i * 4 + 2] * inverse, v[i * 4 + 3] * inverse)) << 16;
    }
#pragma unroll
    for (int i = 0; i < ExpertSort::kTop; ++i) {
      if (places[i] < 0) continue;
      if (step < steps) {
        auto* to = reinterpret_cast<std::uint32_t*>(params.sorted +
                                                    (static_cast<long>(places[i]) * steps + step) * 128 + within);
        to[0] = packed[0];
        to[4] = packed[1];
      }
      if (lane == 0) params.scales[static_cast<long>(group) * params.positions_stride + places[i]] = scale;
    }
  }
}

constexpr int kCombineThreads = 384;

// A block a row, eight numbers a thread; experts in the order of the routing, in f32, rounded once.
__global__ void __launch_bounds__(kCombineThreads) expert_combine_kernel(const ExpertCombine params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
  const long row = blockIdx.x;
  int places[ExpertSort::kTop];
  read_positions(params.positions, row, params.k, places);
  for (int column = threadIdx.x * 8; column < params.hidden; column += kCombineThreads * 8) {
    uint4 bits[ExpertSort::kTop];
#pragma unroll
    for (int i = 0; i < ExpertSort::kTop; ++i) {
      bits[i] = {0, 0, 0, 0};
      if (places[i] < 0) continue;
      bits[i] =
          *reinterpret_cast<const uint4*>(params.weighted + static_cast<long>(places[i]) * params.hidden + column);
    }
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < ExpertSort::kTop; ++i) {
      sum[0] += ptx::bf16_low(bits[i].x), sum[1] += ptx::bf16_high(bits[i].x);
      sum[2] += ptx::bf16_low(bits[i].y), sum[3] += ptx::bf16_high(bits[i].y);
      sum[4] += ptx::bf16_low(bits[i].z), sum[5] += ptx::bf16_high(bits[i].z);
      sum[6] += ptx::bf16_low(bits[i].w), sum[7] += ptx::bf16_high(bits[i].w);
    }
    *reinterpret_cast<uint4*>(params.y + row * params.hidden + column) = {
        ptx::pack_bf16(sum[0], sum[1]), ptx::pack_bf16(sum[2], sum[3]), ptx::pack_bf16(sum[4], sum[5]),
        ptx::pack_bf16(sum[6], sum[7])};
  }
}

}  // namespace

void launch_expert_sort(const ExpertSort& params, cudaStream_t stream) {
  rose::cuda::launch(&expert_sort_kernel, "expert_sort",
                     {.grid = dim3(1), .block = dim3(kSortThreads), .overlap_previous = true}, stream, params);
}

void launch_expert_quantize(const ExpertQuantize& params, cudaStream_t stream) {
  rose::cuda::launch(
      &expert_quantize_kernel, "expert_quantize",
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kQuantizeThreads), .overlap_previous = true},
      stream, params);
}

void launch_expert_combine(const ExpertCombine& params, cudaStream_t stream) {
  rose::cuda::launch(
      &expert_combine_kernel, "expert_combine",
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kCombineThreads), .overlap_previous = true},
      stream, params);
}

}  // namespace rose::ops::cuda
