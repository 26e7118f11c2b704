// Which rows go to which kernel, decided on the device once a step, so that a captured graph stays valid whatever the
// lengths: sequences with more than DecodeConfig::kRowsMax new rows become prefill tiles, the others single decode
// rows; the decode rows' work is one line of items (row, KV head, unit of positions), cut into equal runs, one a block.
//
// Bound: latency, of one trip to memory for what is read and one for what is written; hence one block, one prefix sum
// for all three lists, and tiles and runs listed by all threads, not by their sequence's. Tiles of a sequence are
// listed newest first: the longest work starts first.
//
// The kernel after this one may read the lists before it waits for it: they are in memory before the block ends, and no
// dependent starts earlier.
#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSharedRows = 2048;  // decode rows whose offsets are searched in shared memory

struct PlanCounts {
  int tiles, rows, items;
};

struct PlanShared {
  PlanCounts warps[kThreads / 32];
  int tile_ends[kThreads];  // of the sequences at hand, inclusive
  int offsets[kSharedRows + 1];
};

// Exclusive prefix sums over the block; `total` is the sum of all.
__device__ PlanCounts prefix_sum(PlanShared& shared, const PlanCounts& own, PlanCounts& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  PlanCounts sum = own;
  for (int offset = 1; offset < 32; offset *= 2) {
    const PlanCounts other = {__shfl_up_sync(0xffffffffu, sum.tiles, offset),
                              __shfl_up_sync(0xffffffffu, sum.rows, offset),
                              __shfl_up_sync(0xffffffffu, sum.items, offset)};
    if (lane >= offset) sum = {sum.tiles + other.tiles, sum.rows + other.rows, sum.items + other.items};
  }
  if (lane == 31) shared.warps[warp] = sum;
  __syncthreads();
  PlanCounts before = {sum.tiles - own.tiles, sum.rows - own.rows, sum.items - own.items};
  total = {0, 0, 0};
  for (int w = 0; w < kThreads / 32; ++w) {
    const PlanCounts other = shared.warps[w];
    if (w < warp) before = {before.tiles + other.tiles, before.rows + other.rows, before.items + other.items};
    total = {total.tiles + other.tiles, total.rows + other.rows, total.items + other.items};
  }
  return before;
}

__device__ int oldest_of(const AttentionParams& params, int position) {
  return params.window > 0 ? max(0, position - params.window + 1) : 0;
}

__device__ int items_of(const AttentionParams& params, int position) {
  const int base = oldest_of(params, position) / params.box_rows * params.box_rows;
  const int positions = DecodeConfig::kUnit * params.decode_item_units;
  return (position - base) / positions + 1;
}

// The last of `count` ascending numbers that is at most `value`; the first is.
__device__ int last_at_most(const int* numbers, int count, int value) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (numbers[middle] <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Tiles `begin` on, of the sequences whose numbers of tiles so far are in shared.tile_ends.
__device__ void list_tiles(const PlanShared& shared, const AttentionParams& params, int first_sequence, int begin,
                           int count) {
  for (int tile = threadIdx.x; tile < count; tile += kThreads) {
    int low = 0, high = kThreads - 1;  // the first sequence that ends behind this tile
    while (low < high) {
      const int middle = (low + high) / 2;
      if (shared.tile_ends[middle] > tile) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    params.tile_list[begin + tile] = {first_sequence + low,
                                      (shared.tile_ends[low] - 1 - tile) * PrefillConfig::kTokens};
  }
}

__device__ void list_runs(const PlanShared& shared, const AttentionParams& params, int rows, int items) {
  const int all = items * params.kv_heads;
  // Short contexts: pieces cost time to add up, and so does a long run while most blocks have none.
  const int least = rows > 0 ? min(DecodeConfig::kItemsLeast, max(1, items / rows / 4)) : 1;
  const int length = max(least, (all + params.decode_blocks - 1) / params.decode_blocks);
  const int* offsets = rows <= kSharedRows ? shared.offsets : params.decode_offsets;
  for (int block = threadIdx.x; block < params.decode_blocks; block += kThreads) {
    DecodeRun run{};
    const int begin = min(block * length, all);
    run.items = min(length, all - begin);
    run.length = length;
    if (run.items > 0) {
      run.row = params.decode_rows[last_at_most(offsets, rows, begin / params.kv_heads)];
      const int within = begin - run.row.before;
      run.kv_head = within / run.row.items;
      run.item = within - run.kv_head * run.row.items;
    }
    params.decode_runs[block] = run;
  }
}

__global__ void __launch_bounds__(kThreads) attention_plan_kernel(const __grid_constant__ AttentionParams params) {
  __shared__ PlanShared shared;
  ptx::dependency_wait();
  PlanCounts before = {0, 0, 0};
  for (int first = 0; first < params.sequences; first += kThreads) {
    const int s = first + static_cast<int>(threadIdx.x);
    const bool valid = s < params.sequences;
    const int row = valid ? params.row_offsets[s] : 0;
    const int rows = valid ? params.row_offsets[s + 1] - row : 0;
    const int fresh = valid ? params.context_lengths[s] - rows : 0;  // position of the first new row
    const int first_page = valid ? params.first_pages[s] : 0;
    const bool decodes = rows <= DecodeConfig::kRowsMax;
    PlanCounts own = {decodes ? 0 : (rows + PrefillConfig::kTokens - 1) / PrefillConfig::kTokens, decodes ? rows : 0,
                      0};
    for (int r = 0; r < own.rows; ++r) own.items += items_of(params, fresh + r);
    PlanCounts total;
    const PlanCounts sum = prefix_sum(shared, own, total);

    shared.tile_ends[threadIdx.x] = sum.tiles + own.tiles;
    int offset = before.items + sum.items;
    for (int r = 0; r < own.rows; ++r) {
      const int index = before.rows + sum.rows + r, position = fresh + r, items = items_of(params, position);
      params.decode_rows[index] = {.row = row + r,
                                   .table = s * params.pages_max - first_page,
                                   .begin = oldest_of(params, position),
                                   .end = position + 1,
                                   .fresh = params.reads_own_rows ? 0 : fresh,
                                   .items = items,
                                   .before = offset * params.kv_heads,
                                   .index = index};
      params.decode_offsets[index] = offset;
      if (index < kSharedRows) shared.offsets[index] = offset;
      offset += items;
    }
    __syncthreads();
    list_tiles(shared, params, first, before.tiles, total.tiles);
    before = {before.tiles + total.tiles, before.rows + total.rows, before.items + total.items};
    __syncthreads();
  }
  if (threadIdx.x == 0) *params.tile_count = before.tiles;
  list_runs(shared, params, before.rows, before.items);
  __threadfence();
}

}  // namespace

void launch_attention_plan(const AttentionParams& params, cudaStream_t stream) {
  rose::cuda::launch(&attention_plan_kernel, "attention_plan",
                     {.grid = dim3(1), .block = dim3(kThreads), .overlap_previous = true}, stream, params);
}

}  // namespace rose::ops::cuda
