// Which rows go to which kernel, decided on the device once a step, so that a captured graph stays valid whatever the
// lengths: sequences with more than DecodeConfig::kRowsMax new rows become prefill tiles, the others single decode
// rows.
//
// One block. Tiles of a sequence are listed newest first: the longest work starts first.
#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 256;

// Exclusive prefix sum over the block; `total` is the sum of all.
__device__ int prefix_sum(int value, int& total) {
  __shared__ int sums[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int inclusive = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, inclusive, offset);
    if (lane >= offset) inclusive += other;
  }
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

__device__ int units_of(const AttentionParams& params, int position) {
  const int oldest = params.window > 0 ? max(0, position - params.window + 1) : 0;
  const int base = oldest / params.page_size * params.page_size;
  return (position + 1 - base + DecodeConfig::kUnit - 1) / DecodeConfig::kUnit;
}

__global__ void __launch_bounds__(kThreads) attention_plan_kernel(const __grid_constant__ AttentionParams params) {
  ptx::dependency_wait();
  int tiles_before = 0, rows_before = 0, units_before = 0;
  for (int first = 0; first < params.sequences; first += kThreads) {
    const int s = first + static_cast<int>(threadIdx.x);
    const bool valid = s < params.sequences;
    const int row = valid ? params.row_offsets[s] : 0;
    const int rows = valid ? params.row_offsets[s + 1] - row : 0;
    const int position = valid ? params.context_lengths[s] - rows : 0;  // of the first new row
    const bool decodes = rows <= DecodeConfig::kRowsMax;
    const int tiles = decodes ? 0 : (rows + PrefillConfig::kTokens - 1) / PrefillConfig::kTokens;
    int units = 0;
    for (int r = 0; decodes && r < rows; ++r) units += units_of(params, position + r);

    int total;
    int at = tiles_before + prefix_sum(tiles, total);
    tiles_before += total;
    for (int t = tiles - 1; t >= 0; --t) params.tile_list[at++] = {s, t * PrefillConfig::kTokens};
    at = rows_before + prefix_sum(decodes ? rows : 0, total);
    rows_before += total;
    int offset = units_before + prefix_sum(units, total);
    units_before += total;
    for (int r = 0; decodes && r < rows; ++r, ++at) {
      const int oldest = params.window > 0 ? max(0, position + r - params.window + 1) : 0;
      params.decode_rows[at] = {row + r, s, oldest, position + r + 1};
      params.decode_offsets[at] = offset;
      offset += units_of(params, position + r);
    }
  }
  if (threadIdx.x == 0) {
    *params.tile_count = tiles_before;
    params.decode_counts[0] = rows_before;
    params.decode_offsets[rows_before] = units_before;
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_attention_plan(const AttentionParams& params, cudaStream_t stream) {
  rose::cuda::launch(&attention_plan_kernel, "attention_plan", {.grid = dim3(1), .block = dim3(kThreads)}, stream,
                     params);
}

}  // namespace rose::ops::cuda
