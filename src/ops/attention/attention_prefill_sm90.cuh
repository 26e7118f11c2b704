// Attention over many new rows a sequence (attention.h), bf16, head_dim 64, 8 query heads a KV head.
//
// Bound: a score costs 256 FLOPs of WGMMA (1/16 clock an SM at the bf16 peak) and one exponential (1/16 clock on the
// special-function unit), so both must overlap; a quarter of the exponentials run as a polynomial on the FMA units.
//
// Mapping: a tile is 24 tokens x the 8 query heads of one KV head = 192 rows, so that the causal edge and the window
// cost 24 tokens, not 192. A persistent grid walks the tiles: KV heads outermost (the keys of one head stay in L2),
// long tiles first. In a block one producer warp loads Q, and K and V tiles of 128 positions, page by page, by TMA;
// three consumer warpgroups own 64 rows each. Row r of a tile is token r / 8, head r % 8, so a thread holds two tokens
// of one head.
//
// A consumer keeps S = Q K^T of the next positions in flight while it takes exponentials, and P V while it takes the
// next: tiles run from the newest positions to the oldest, so masks are needed in the first tiles only (and in the last
// of a window). The running maximum starts at the sink and the running sum at 1: the sink then enters exactly once.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

struct alignas(1024) PrefillShared {
  using C = PrefillConfig;
  std::uint8_t query[C::kQueryBytes];
  std::uint8_t out[C::kQueryBytes];
  std::uint8_t keys[C::kStages][C::kTileBytes];
  std::uint8_t values[C::kStages][C::kTileBytes];
  std::uint64_t query_full, query_empty;
  std::uint64_t keys_full[C::kStages], keys_empty[C::kStages];
  std::uint64_t values_full[C::kStages], values_empty[C::kStages];
};
static_assert(sizeof(PrefillShared) <= 227 * 1024);

// What one tile covers.
struct PrefillTile {
  int sequence;
  int kv_head;
  int row;         // first row of the batch
  int tokens;      // valid ones, at most kTokens
  int position;    // of the first token
  int keys_begin;  // first position looked at, a multiple of the page size
  int key_tiles;
};

__device__ inline PrefillTile prefill_tile(const AttentionParams& params, int tiles, int index) {
  PrefillTile tile;
  tile.kv_head = index / tiles;
  const int2 entry = params.tile_list[index % tiles];
  tile.sequence = entry.x;
  const int first_row = params.row_offsets[entry.x];
  const int rows = params.row_offsets[entry.x + 1] - first_row;
  tile.row = first_row + entry.y;
  tile.tokens = min(PrefillConfig::kTokens, rows - entry.y);
  tile.position = params.context_lengths[entry.x] - rows + entry.y;
  const int oldest = params.window > 0 ? max(0, tile.position - params.window + 1) : 0;
  tile.keys_begin = oldest / params.page_size * params.page_size;
  tile.key_tiles = (tile.position + tile.tokens - tile.keys_begin + PrefillConfig::kKeys - 1) / PrefillConfig::kKeys;
  return tile;
}

// --- producer
// ------------------------------------------------------------------------------------------------------------

// One K or V tile, a page at a time; `table` is indexed by logical page. Pages past the newest position (`last`) repeat
// that one: their scores are masked, but what is multiplied by zero must still be a number.
__device__ inline void prefill_load_tile(const CUtensorMap* map, std::uint64_t* full, std::uint8_t* stage,
                                         const int* table, int page, int last, const AttentionParams& params,
                                         int kv_head) {
  ptx::barrier_arrive_expect(full, PrefillConfig::kTileBytes);
#pragma unroll 1
  for (int row = 0; row < PrefillConfig::kKeys; row += params.page_size, ++page) {
    const int box = table[min(page, last)] * params.kv_heads + kv_head;
    ptx::tma_load_2d(map, full, stage + row * 128, 0, box * params.page_size, ptx::kEvictLast);
  }
}

__device__ inline void prefill_produce(PrefillShared& shared, const AttentionParams& params) {
  using C = PrefillConfig;
  const int pages_a_tile = C::kKeys / params.page_size;
  ptx::Ring<C::kStages> ring;
  const int tiles = *params.tile_count;
  int phase = 0;
  for (int index = blockIdx.x; index < tiles * params.kv_heads; index += gridDim.x, phase ^= 1) {
    const PrefillTile tile = prefill_tile(params, tiles, index);
    const int* table =
        params.page_table + static_cast<long>(tile.sequence) * params.pages_max - params.first_pages[tile.sequence];
    const int first = tile.keys_begin / params.page_size;
    const int last = (tile.position + tile.tokens - 1) / params.page_size;
    ptx::barrier_wait(&shared.query_empty, phase ^ 1);
    ptx::barrier_arrive_expect(&shared.query_full, C::kQueryBytes);
    ptx::tma_load_3d(&params.query, &shared.query_full, shared.query, 0, tile.kv_head * C::kGroupHeads, tile.row);
#pragma unroll 1
    for (int page = first + (tile.key_tiles - 1) * pages_a_tile; page >= first; page -= pages_a_tile, ring.advance()) {
      ptx::barrier_wait(&shared.keys_empty[ring.stage], ring.phase ^ 1);
      prefill_load_tile(&params.keys, &shared.keys_full[ring.stage], shared.keys[ring.stage], table, page, last, params,
                        tile.kv_head);
      ptx::barrier_wait(&shared.values_empty[ring.stage], ring.phase ^ 1);
      prefill_load_tile(&params.values, &shared.values_full[ring.stage], shared.values[ring.stage], table, page, last,
                        params, tile.kv_head);
    }
  }
}

// --- consumer
// ------------------------------------------------------------------------------------------------------------

using Scores = float[PrefillConfig::kKeys / 2];  // 64 rows x 128 positions, over a warpgroup
using Probabilities = std::uint32_t[PrefillConfig::kKeys / 4];
using Output = float[PrefillConfig::kHeadDim / 2];

// The two rows of a thread: running maximum (in score units), running sum (this thread's columns only).
struct RowState {
  float maximum[2];
  float sum[2];
};

__device__ inline void issue_scores(const std::uint8_t* query, const std::uint8_t* keys, Scores& scores) {
  const std::uint64_t q = ptx::swizzle128_descriptor(ptx::shared_address(query));
  const std::uint64_t k = ptx::swizzle128_descriptor(ptx::shared_address(keys));
#pragma unroll
  for (int step = 0; step < PrefillConfig::kHeadDim / 16; ++step) {
    ptx::WgmmaBf16<PrefillConfig::kKeys>::ss(scores, q + 2 * step, k + 2 * step, step != 0);
  }
}

__device__ inline void issue_output(const Probabilities& p, const std::uint8_t* values, Output& out) {
  const std::uint64_t v = ptx::swizzle128_descriptor(ptx::shared_address(values));
#pragma unroll
  for (int step = 0; step < PrefillConfig::kKeys / 16; ++step) {  // 16 positions: 2048 bytes of V
    const std::uint32_t a[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
    ptx::WgmmaBf16<PrefillConfig::kHeadDim>::rs<true>(out, a, v + 128 * step, 1);
  }
}

// Hides positions after the row's own and before its window. `ahead` is how far this thread's first column lies ahead
// of its first row; rows r and r + 8 of a warp are neighbouring tokens.
__device__ inline void mask_scores(Scores& scores, int ahead, int window) {
#pragma unroll
  for (int i = 0; i < PrefillConfig::kKeys / 2; ++i) {
    const int column = ahead + i / 4 * 8 + i % 2 - (i % 4) / 2;
    if (column > 0 || (window > 0 && column <= -window)) scores[i] = -INFINITY;
  }
}

// 2^x on the FMA units: round to the nearest integer by adding 1.5 * 2^23, a cubic for the rest, the integer added to
// the exponent. Largest relative error 8.8e-5, far below bf16's 2^-9. x <= 0 here; below -126 it is cut off there.
__device__ inline float exp2_polynomial(float x) {
  x = fmaxf(x, -126.f);
  const float shifted = x + 12582912.f;
  const float rest = x - (shifted - 12582912.f);
  float y = fmaf(0.05550411f, rest, 0.24022651f);
  y = fmaf(y, rest, 0.69314718f);
  y = fmaf(y, rest, 1.f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// Replaces scores by exp2((s - maximum) * scale), updates the row state; returns the factors on earlier output.
template <bool kPolynomial>
__device__ inline void take_exponentials(Scores& scores, RowState& state, float scale, float (&factor)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float highest = state.maximum[row];
#pragma unroll
    for (int i = 0; i < PrefillConfig::kKeys / 4; ++i) highest = fmaxf(highest, scores[i / 2 * 4 + row * 2 + i % 2]);
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    factor[row] = ptx::exp2_fast((state.maximum[row] - highest) * scale);
    state.maximum[row] = highest;
    const float offset = highest * scale;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PrefillConfig::kKeys / 4; ++i) {
      float& score = scores[i / 2 * 4 + row * 2 + i % 2];
      const float x = fmaf(score, scale, -offset);
      score = kPolynomial && i % 4 == 3 ? exp2_polynomial(x) : ptx::exp2_fast(x);
      sum += score;
    }
    state.sum[row] = state.sum[row] * factor[row] + sum;
  }
}

__device__ inline void round_scores(const Scores& scores, Probabilities& p) {
#pragma unroll
  for (int i = 0; i < PrefillConfig::kKeys / 4; ++i) p[i] = ptx::pack_bf16(scores[2 * i], scores[2 * i + 1]);
}

__device__ inline void scale_output(Output& out, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < PrefillConfig::kHeadDim / 2; ++i) out[i] *= factor[i % 4 / 2];
}

// Divides by the whole sum (the quad's four threads share a row) and writes the valid tokens, 16 bytes a thread.
__device__ inline void store_output(PrefillShared& shared, const AttentionParams& params, const PrefillTile& tile,
                                    int consumer, const RowState& state, const Output& out) {
  using C = PrefillConfig;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float inverse[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float sum = state.sum[row];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    inverse[row] = 1.f / sum;
  }
  // Only this warp touches its 16 rows of the buffer: no barrier beyond the warp's.
  std::uint8_t* rows = shared.out + (consumer * 64 + warp * 16) * 128;
  __syncwarp();
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    std::uint32_t packed[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* o = &out[(pair * 2 + half) * 4];
      packed[half * 2] = ptx::pack_bf16(o[0] * inverse[0], o[1] * inverse[0]);
      packed[half * 2 + 1] = ptx::pack_bf16(o[2] * inverse[1], o[3] * inverse[1]);
    }
    const int row = lane % 16;
    const int unit = (pair * 2 + lane / 16) ^ (row % 8);
    ptx::stmatrix_x4(ptx::shared_address(rows) + static_cast<std::uint32_t>(row * 128 + unit * 16), packed[0],
                     packed[1], packed[2], packed[3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 16 rows x 8 units of 16 bytes over 32 lanes
    const int row = i * 4 + lane / 8, unit = lane % 8;
    const int token = consumer * 8 + warp * 2 + row / C::kGroupHeads;
    if (token >= tile.tokens) continue;
    const uint4 bits = *reinterpret_cast<const uint4*>(rows + row * 128 + (unit ^ (row % 8)) * 16);
    const long head = tile.kv_head * C::kGroupHeads + row % C::kGroupHeads;
    const long offset = (static_cast<long>(tile.row + token) * params.heads + head) * C::kHeadDim + unit * 8;
    *reinterpret_cast<uint4*>(params.out + offset) = bits;
  }
}

template <bool kPolynomial>
__device__ inline void prefill_consume(PrefillShared& shared, const AttentionParams& params, int consumer) {
  using C = PrefillConfig;
  const std::uint8_t* query = shared.query + consumer * 64 * 128;
  ptx::Ring<C::kStages> keys, values;
  const int tiles = *params.tile_count;
  int phase = 0;
  for (int index = blockIdx.x; index < tiles * params.kv_heads; index += gridDim.x, phase ^= 1) {
    // Of the tile only these two stay in registers through the loop: they are scarce.
    int remaining, ahead;  // tiles of positions to go; first of them, relative to the oldest token
    RowState state;
    {
      const PrefillTile tile = prefill_tile(params, tiles, index);
      remaining = tile.key_tiles;
      ahead = tile.keys_begin + (tile.key_tiles - 1) * C::kKeys - tile.position - consumer * 8;
      const float sink = ptx::bf16_to_float(params.sinks[tile.kv_head * C::kGroupHeads + threadIdx.x % 32 / 4]);
      state.maximum[0] = state.maximum[1] = sink * params.inverse_scale;
      state.sum[0] = state.sum[1] = threadIdx.x % 4 == 0 ? 1.f : 0.f;
    }
    Scores scores;
    Probabilities p;
    Output out;
#pragma unroll
    for (int i = 0; i < C::kHeadDim / 2; ++i) out[i] = 0;
    float factor[2];

    // Masks are needed where the positions reach past this consumer's oldest token, or before a window.
    const auto mask = [&] {
      if (ahead + C::kKeys - 1 > 0 || (params.window > 0 && ahead <= 7 - params.window)) {
        mask_scores(scores, ahead + static_cast<int>(threadIdx.x % 4 * 2 - threadIdx.x / 32 % 4 * 2), params.window);
      }
      ahead -= C::kKeys;
    };

    ptx::barrier_wait(&shared.query_full, phase);
    ptx::barrier_wait(&shared.keys_full[keys.stage], keys.phase);
    ptx::wgmma_fence();
    issue_scores(query, shared.keys[keys.stage], scores);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::barrier_arrive(&shared.keys_empty[keys.stage]);
    keys.advance();
    mask();
    take_exponentials<kPolynomial>(scores, state, params.scale_log2, factor);
    round_scores(scores, p);

    while (--remaining > 0) {
      ptx::barrier_wait(&shared.keys_full[keys.stage], keys.phase);
      ptx::wgmma_fence();
      issue_scores(query, shared.keys[keys.stage], scores);
      ptx::wgmma_commit();
      ptx::barrier_wait(&shared.values_full[values.stage], values.phase);
      ptx::wgmma_fence();
      issue_output(p, shared.values[values.stage], out);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the scores are there, P V still runs
      ptx::barrier_arrive(&shared.keys_empty[keys.stage]);
      keys.advance();
      mask();
      take_exponentials<kPolynomial>(scores, state, params.scale_log2, factor);
      ptx::wgmma_wait<0>();
      ptx::barrier_arrive(&shared.values_empty[values.stage]);
      values.advance();
      scale_output(out, factor);
      round_scores(scores, p);
    }
    ptx::barrier_arrive(&shared.query_empty);
    ptx::barrier_wait(&shared.values_full[values.stage], values.phase);
    ptx::wgmma_fence();
    issue_output(p, shared.values[values.stage], out);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::barrier_arrive(&shared.values_empty[values.stage]);
    values.advance();
    store_output(shared, params, prefill_tile(params, tiles, index), consumer, state, out);
  }
}

template <bool kPolynomial>
__global__ void __launch_bounds__(PrefillConfig::kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ AttentionParams params) {
  using C = PrefillConfig;
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    ptx::barrier_init(&shared.query_full, 1);
    ptx::barrier_init(&shared.query_empty, 128 * C::kConsumers);
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::barrier_init(&shared.keys_full[stage], 1);
      ptx::barrier_init(&shared.keys_empty[stage], 128 * C::kConsumers);
      ptx::barrier_init(&shared.values_full[stage], 1);
      ptx::barrier_init(&shared.values_empty[stage], 128 * C::kConsumers);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::dependency_wait();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    ptx::registers_decrease<32>();
    if (threadIdx.x == 0) prefill_produce(shared, params);
  } else {
    ptx::registers_increase<160>();
    prefill_consume<kPolynomial>(shared, params, warpgroup - 1);
    ptx::dependents_launch();
  }
}

template <bool kPolynomial>
void launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&attention_prefill_kernel<kPolynomial>, "attention_prefill",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(PrefillConfig::kThreads),
                      .shared_bytes = sizeof(PrefillShared) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
