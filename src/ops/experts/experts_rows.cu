// What surrounds the two products: sorting rows by expert (and cutting the runs into tiles), quantizing them into their
// places, adding the results up.
//
// All three are bound by memory or latency: at 8192 rows of 2880 with 4 experts a row, quantize writes 94 MB and
// combine reads 189 MB.
#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"

namespace rose::ops::cuda {
namespace {

// --- sort

constexpr int kFewSortThreads = 256, kSortThreads = 1024;
constexpr int kBatch = 8;  // entries that a thread has in flight

// Entries begin + i kThreads; -1 past the end.
template <int kThreads>
__device__ void read_experts(const ExpertSort& params, int begin, int entries, int (&chosen)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int entry = begin + i * kThreads;
    chosen[i] = entry < entries ? params.experts[entry] : -1;
  }
}

// Sums over the block: of `mine` over the threads before this one, and of both over all.
struct SortSums {
  int mine_before, mine, less;
};
template <int kThreads>
__device__ SortSums sum_block(int mine, int less) {
  __shared__ int2 warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = mine;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += below;
  }
  const int less_of_warp = static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(less)));
  if (lane == 31) warps[warp] = {sum, less_of_warp};
  __syncthreads();
  SortSums sums{sum - mine, 0, 0};
  for (int w = 0; w < kThreads / 32; ++w) {
    const int2 other = warps[w];
    sums.mine_before += w < warp ? other.x : 0;
    sums.mine += other.x;
    sums.less += other.y;
  }
  return sums;
}

// A run starts at the count of the entries before it, rounded up, plus a unit for each expert before it: past the end
// of the run before, whatever the counts are, so that no block waits for another.
__device__ int run_start(int entries_before, int expert) {
  constexpr int kUnit = ExpertSort::kRunAlignment;
  return (entries_before + kUnit - 1) / kUnit * kUnit + expert * kUnit;
}

// --- tiles

// The first of ROSE_EXPERT_SHAPES that holds the rows.
__device__ int narrowest_shape(int rows) {
  int shape = 0;
#define ROSE_X(parts, n) \
  if (shape == 0 && rows <= parts * n) shape = expert_shape(parts, n);
  ROSE_EXPERT_SHAPES(ROSE_X)
#undef ROSE_X
  return shape;
}

// One block: counts the entries of every expert and spreads the rows of each evenly over its tiles. With the largest
// tiles first, blocks that take every n-th tile end within one small tile of each other.
template <int kThreads>
__device__ void write_tiles(const ExpertSort& params) {
  static_assert(kThreads >= ExpertSort::kExpertsMax);
  constexpr int kUnit = ExpertSort::kRunAlignment;
  __shared__ int counts[ExpertSort::kExpertsMax];
  __shared__ int2 cuts[ExpertSort::kExpertsMax];  // tiles, and what orders them
  const int expert = threadIdx.x, entries = params.rows * params.k;
  if (expert < ExpertSort::kExpertsMax) counts[expert] = 0;
  __syncthreads();
  for (int begin = threadIdx.x; begin < entries; begin += kBatch * kThreads) {
    int chosen[kBatch];
    read_experts<kThreads>(params, begin, entries, chosen);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int held = chosen[i] - params.first_expert;
      if (held >= 0 && held < params.experts_held) atomicAdd(&counts[held], 1);
    }
  }
  __syncthreads();
  const bool holds = expert < params.experts_held;
  const int rows = holds ? counts[expert] : 0, tiles = (rows + params.tile_rows - 1) / params.tile_rows;
  const int order = params.largest_first && tiles > 0 ? (rows + tiles - 1) / tiles : 0;
  if (holds) cuts[expert] = {tiles, order};
  __syncthreads();
  if (!holds) return;
  int before = 0, first = 0, all = 0;
  for (int other = 0; other < params.experts_held; ++other) {
    const int2 cut = cuts[other];
    if (other < expert) before += counts[other];
    if (cut.y > order || (cut.y == order && other < expert)) first += cut.x;
    all += cut.x;
  }
  const int start = run_start(before, expert), units = (rows + kUnit - 1) / kUnit;
  for (int t = 0; t < tiles; ++t) {
    const int from = units * t / tiles * kUnit, to = min(units * (t + 1) / tiles * kUnit, rows);
    params.tiles[first + t] = {expert, start + from, to - from, narrowest_shape(to - from)};
  }
  if (expert == 0) *params.tile_count = all;
}

// --- places

// A block an expert, which deals out places in the order of its threads, and one that writes the tiles.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) expert_sort_kernel(const ExpertSort params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
  const int entries = params.rows * params.k, expert = static_cast<int>(blockIdx.x);
  if (expert == params.experts_held) return write_tiles<kThreads>(params);
  const int own = params.first_expert + expert, last = params.first_expert + params.experts_held;
  const bool read_once = entries <= kBatch * kThreads;
  int chosen[kBatch], mine = 0, less = 0;
  for (int begin = threadIdx.x; begin < entries; begin += kBatch * kThreads) {
    read_experts<kThreads>(params, begin, entries, chosen);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      mine += chosen[i] == own;
      less += chosen[i] >= params.first_expert && chosen[i] < own;
    }
  }
  const SortSums sums = sum_block<kThreads>(mine, less);
  int place = run_start(sums.less, expert) + sums.mine_before;
  if (mine == 0 && expert > 0) return;
  for (int begin = threadIdx.x; begin < entries; begin += kBatch * kThreads) {
    if (!read_once) read_experts<kThreads>(params, begin, entries, chosen);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int entry = begin + i * kThreads;
      if (chosen[i] == own) {
        params.positions[entry] = place;
        params.sorted_weights[place++] = params.weights[entry];
      } else if (expert == 0 && entry < entries && (chosen[i] < params.first_expert || chosen[i] >= last)) {
        params.positions[entry] = -1;
      }
    }
  }
}

// --- rows

// Of one row: its places in the sorted order, -1 where there is none.
__device__ void read_positions(const int* positions, long row, int k, int (&places)[ExpertSort::kTop]) {
#pragma unroll
  for (int i = 0; i < ExpertSort::kTop; ++i) places[i] = i < k ? positions[row * k + i] : -1;
}

constexpr int kQuantizeFewRows = 512;  // for which a warp takes one group, so that none waits for a second load

// A block a row; a warp takes groups of 256, eight numbers a lane. The scale is the largest magnitude / 448.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) expert_quantize_kernel(const ExpertQuantize params) {
  ptx::dependency_wait();
  ptx::dependents_launch();
  const long row = blockIdx.x;
  const int lane = threadIdx.x % 32, steps = (params.hidden + 127) / 128;
  int places[ExpertSort::kTop];
  read_positions(params.positions, row, params.k, places);
  // Inputs 8 l.. of a step, 32 t + 8 w.., stand at 32 w + 4 t.. and 32 w + 16 + 4 t.. (experts_products_sm90.cuh).
  const int within = lane % 4 * 32 + lane % 16 / 4 * 4;
  for (int group = threadIdx.x / 32; group * 2 < steps; group += kThreads / 32) {
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
  const bool few = params.rows * params.k <= kBatch * kFewSortThreads;
  rose::cuda::launch(few ? &expert_sort_kernel<kFewSortThreads> : &expert_sort_kernel<kSortThreads>, "expert_sort",
                     {.grid = dim3(static_cast<unsigned>(params.experts_held + 1)),
                      .block = dim3(few ? kFewSortThreads : kSortThreads),
                      .overlap_previous = true},
                     stream, params);
}

void launch_expert_quantize(const ExpertQuantize& params, cudaStream_t stream) {
  const bool few = params.rows <= kQuantizeFewRows;
  rose::cuda::launch(
      few ? &expert_quantize_kernel<384> : &expert_quantize_kernel<128>, "expert_quantize",
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(few ? 384 : 128), .overlap_previous = true},
      stream, params);
}

void launch_expert_combine(const ExpertCombine& params, cudaStream_t stream) {
  rose::cuda::launch(
      &expert_combine_kernel, "expert_combine",
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kCombineThreads), .overlap_previous = true},
      stream, params);
}

}  // namespace rose::ops::cuda
