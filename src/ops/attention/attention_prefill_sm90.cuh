// Attention over many new rows a sequence (attention.h), bf16, head_dim 64, 8 query heads a KV head.
//
// Bound: a score costs 256 FLOPs of WGMMA (1/16 clock an SM at the bf16 peak) and one exponential (1/16 clock on the
// special-function unit), so both must overlap; part of the exponentials may run as a polynomial on the FMA units.
//
// Mapping: a tile is 24 tokens x the 8 query heads of one KV head = 192 rows, so that the causal edge and the window
// cost 24 tokens, not 192. A persistent grid walks the tiles, long ones first, every other round backwards, so that
// blocks end together. In a block one producer thread loads Q, and K and V in units of 64 positions, by TMA; three
// consumer warpgroups own 64 rows each. Row r of a tile is token r / 8, head r % 8, so a thread holds two tokens of one
// head.
//
// Units are counted back from the newest position, so the causal edge lies within the first, and older ones need no
// mask but at the far end. A consumer has two sets of scores: while it takes the exponentials of one unit, S = Q K^T of
// the next but one and O += P V of the one before run on the tensor cores.
//
// The exponent's offset is exact for the first unit (its maximum and the sink) and then stays: sums and products are
// f32 and probabilities bf16, whose relative precision does not depend on size, so an offset below the maximum costs
// nothing until numbers leave f32's range. That saves a third of the instructions (maxima, factors, rescaling). A row
// whose sum has grown past 2^64 at the end says that it was not enough: its tile is computed again, with running
// maxima, after the block's other tiles.
//
// What lies past a context's end may be anything, NaN too: scores there are replaced, and values cleared in shared
// memory, in the one unit that can reach it.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

// What one tile covers.
struct PrefillTile {
  int round;  // of the block
  int kv_head;
  int row;       // first row of the batch
  int tokens;    // valid ones, at most kTokens
  int position;  // of the first token
  int oldest;    // position that any token sees
  int end;       // of unit 0: behind the newest position, a multiple of box_rows
  int units;     // 0: no more tiles
  int table;     // entry of logical page 0 in page_table
  int context;   // positions of the sequence that hold keys and values
};

struct alignas(1024) PrefillShared {
  using C = PrefillConfig;
  std::uint8_t query[2][C::kQueryBytes];
  std::uint8_t out[C::kQueryBytes];
  std::uint8_t keys[C::kStages][C::kUnitBytes];
  std::uint8_t values[C::kStages][C::kUnitBytes];
  PrefillTile tiles[2];  // those of `query`
  std::uint64_t query_full[2], query_empty[2];
  std::uint64_t full[C::kStages], empty[C::kStages];
  std::uint64_t finished;                 // all tiles, but for those to be computed again
  std::uint32_t again[C::kRepeats / 32];  // a bit a round
};
static_assert(sizeof(PrefillShared) <= 227 * 1024 - 1023);

// The block's tile of a round, of `tiles` of each KV head.
__device__ inline bool prefill_tile(const AttentionParams& params, int tiles, int round, PrefillTile& tile) {
  const int place = round % 2 == 0 ? static_cast<int>(blockIdx.x) : static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int index = round * static_cast<int>(gridDim.x) + place;
  const int entry_index = index / params.kv_heads;
  if (entry_index >= tiles) return false;
  tile.round = round;
  tile.kv_head = index - entry_index * params.kv_heads;
  const int2 entry = params.tile_list[entry_index];
  const int first_row = params.row_offsets[entry.x];
  const int rows = params.row_offsets[entry.x + 1] - first_row;
  tile.row = first_row + entry.y;
  tile.tokens = min(PrefillConfig::kTokens, rows - entry.y);
  tile.context = params.context_lengths[entry.x];
  tile.position = tile.context - rows + entry.y;
  tile.oldest = params.window > 0 ? max(0, tile.position - params.window + 1) : 0;
  tile.end = (tile.position + tile.tokens + params.box_rows - 1) / params.box_rows * params.box_rows;
  tile.units = (tile.end - tile.oldest + PrefillConfig::kKeys - 1) / PrefillConfig::kKeys;
  tile.table = entry.x * params.pages_max - params.first_pages[entry.x];
  return true;
}

// A place in the endless sequence of units: its stage, and the parity of the barriers there.
__device__ inline int stage_of(int unit) { return unit & (PrefillConfig::kStages - 1); }
__device__ inline int parity_of(int unit) { return unit / PrefillConfig::kStages & 1; }

// --- producer
// ------------------------------------------------------------------------------------------------------------

// A tile's Q, K and V; returns the number of units so far. Boxes before the oldest position's page: that one again;
// hidden.
__device__ inline int prefill_load_tile(PrefillShared& shared, const AttentionParams& params, int slot, int at) {
  using C = PrefillConfig;
  const PrefillTile& tile = shared.tiles[slot];
  const int kv_head = tile.kv_head;
  ptx::barrier_arrive_expect(&shared.query_full[slot], C::kQueryBytes);
  ptx::tma_load_3d(&params.query, &shared.query_full[slot], shared.query[slot], 0, kv_head * C::kGroupHeads, tile.row);
  const int* table = params.page_table + tile.table;
  const int first = tile.oldest >> params.page_shift << params.page_shift, last = at + tile.units;
  int begin = tile.end - C::kKeys;
#pragma unroll 1
  for (; at < last; ++at, begin -= C::kKeys) {
    const int stage = stage_of(at);
    ptx::barrier_wait(&shared.empty[stage], parity_of(at) ^ 1);
    ptx::barrier_arrive_expect(&shared.full[stage], 2 * C::kUnitBytes);
#pragma unroll 1
    for (int box = 0; box < C::kKeys; box += params.box_rows) {
      const int position = max(begin + box, first), page = position >> params.page_shift;
      const int row =
          ((table[page] * params.kv_heads + kv_head) << params.page_shift) + position - (page << params.page_shift);
      ptx::tma_load_2d(&params.keys, &shared.full[stage], shared.keys[stage] + box * 128, 0, row, ptx::kEvictLast);
      ptx::tma_load_2d(&params.values, &shared.full[stage], shared.values[stage] + box * 128, 0, row, ptx::kEvictLast);
    }
  }
  return at;
}

// One thread. Tiles, then one without units; when the consumers have finished those, the marked ones again, then
// another without units.
__device__ inline void prefill_produce(PrefillShared& shared, const AttentionParams& params) {
  const int tiles = *params.tile_count;
  int at = 0, published = 0, rounds = 0x7fffffff;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
    for (int round = 0;; ++round) {
      const int slot = published % 2, bit = round % PrefillConfig::kRepeats;
      if (pass == 1 && round < rounds &&
          (*const_cast<volatile std::uint32_t*>(&shared.again[bit / 32]) >> (bit % 32) & 1) == 0)
        continue;
      ptx::barrier_wait(&shared.query_empty[slot], published / 2 % 2 ^ 1);
      ++published;
      if (round >= rounds || !prefill_tile(params, tiles, round, shared.tiles[slot])) {
        rounds = min(rounds, round);
        shared.tiles[slot].units = 0;
        ptx::barrier_arrive(&shared.query_full[slot]);
        break;
      }
      at = prefill_load_tile(shared, params, slot, at);
    }
    if (pass == 0) ptx::barrier_wait(&shared.finished, 0);
  }
}

// --- consumer
// ------------------------------------------------------------------------------------------------------------

using Scores = float[PrefillConfig::kKeys / 2];  // 64 rows x 64 positions, over a warpgroup
using Probabilities = std::uint32_t[PrefillConfig::kKeys / 4];
using Output = float[PrefillConfig::kHeadDim / 2];

// The two rows of a thread: the exponent's offset (log2 units), and the sum of this thread's columns.
struct RowState {
  float offset[2];
  float sum[2];
};

// `query`: this warpgroup's 64 rows.
__device__ inline void issue_scores(const std::uint8_t* query, const std::uint8_t* keys, Scores& scores) {
  const std::uint64_t q = ptx::swizzle128_descriptor(ptx::shared_address(query));
  const std::uint64_t k = ptx::swizzle128_descriptor(ptx::shared_address(keys));
#pragma unroll
  for (int step = 0; step < PrefillConfig::kHeadDim / 16; ++step)
    ptx::WgmmaBf16<PrefillConfig::kKeys>::ss<false>(scores, q + 2 * step, k + 2 * step, step != 0);
}

__device__ inline void issue_output(const Probabilities& p, const std::uint8_t* values, Output& out) {
  const std::uint64_t v = ptx::swizzle128_descriptor(ptx::shared_address(values));
#pragma unroll
  for (int step = 0; step < PrefillConfig::kKeys / 16; ++step) {  // 16 positions: 2048 bytes of V
    const std::uint32_t a[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
    ptx::WgmmaBf16<PrefillConfig::kHeadDim>::rs<true>(out, a, v + 128 * step, 1);
  }
}

// Hides positions after the row's own, before its window, and before the context. `position` is that of this thread's
// first row, `begin` that of the unit; rows r and r + 8 of a warp are neighbouring tokens.
__device__ inline void mask_scores(Scores& scores, int begin, int position, int window) {
  const int ahead = begin + static_cast<int>(threadIdx.x % 4) * 2 - position;
  const int behind = window > 0 ? -window : -0x3fffffff;
  const int low0 = max(behind, -position - 1), low1 = max(behind, -position - 2);
#pragma unroll
  for (int i = 0; i < PrefillConfig::kKeys / 2; ++i) {
    const int column = ahead + i / 4 * 8 + i % 2 - (i % 4) / 2;
    if (column > 0 || column <= (i % 4 < 2 ? low0 : low1)) scores[i] = -INFINITY;
  }
}

// 2^(score * scale - offset) on the FMA units, for exponents in [-126, 126], to which they are cut: rounded to the
// nearest integer by adding 1.5 * 2^23, a cubic for the rest, the integer added to the exponent. Largest relative error
// 8.8e-5, far below bf16's 2^-9. `scale` and `middle` map the exponent to [0, 1] for an instruction that saturates.
__device__ inline float exp2_polynomial(float score, float scale, float middle) {
  constexpr float kMagic = 12582912.f;
  float t;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(t) : "f"(score), "f"(scale), "f"(middle));
  const float shifted = fmaf(t, 252.f, kMagic - 126.f);
  const float rest = fmaf(t, 252.f, (kMagic - 126.f) - shifted);
  float y = fmaf(0.05550411f, rest, 0.24022651f);
  y = fmaf(y, rest, 0.69314718f);
  y = fmaf(y, rest, 1.f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// p = 2^(score * scale - offset), the row sums with them. One exponential of kPolynomialEvery is a polynomial.
template <int kPolynomialEvery>
__device__ inline void take_exponentials(const Scores& scores, Probabilities& p, RowState& state, float scale) {
  constexpr int kEvery = kPolynomialEvery == 0 ? 1 << 20 : kPolynomialEvery / 2;  // groups of two rows' pairs
  const float narrow = scale * (1.f / 252);
#pragma unroll
  for (int i = 0; i < PrefillConfig::kKeys / 4; ++i) {
    const int row = i % 2;
    const float low = ptx::exp2_fast(fmaf(scores[2 * i], scale, -state.offset[row]));
    const float high = i / 2 % kEvery == kEvery - 1
                           ? exp2_polynomial(scores[2 * i + 1], narrow, fmaf(state.offset[row], -1.f / 252, 0.5f))
                           : ptx::exp2_fast(fmaf(scores[2 * i + 1], scale, -state.offset[row]));
    state.sum[row] += low;
    state.sum[row] += high;
    p[i] = ptx::pack_bf16(low, high);
  }
}

// The compiler would sink the exponentials below the wait for the tensor cores, which they are there to shorten: here
// is an instruction that needs their sums, and does nothing.
__device__ inline void take_now(const RowState& state) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p nanosleep.u32 1;\n}\n" ::"f"(state.sum[0] + state.sum[1])
      : "memory");
}

// Raises the offsets to the maxima of these scores; returns the factors on earlier sums and outputs.
__device__ inline float2 raise_offsets(const Scores& scores, RowState& state, float scale) {
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < PrefillConfig::kKeys / 4; ++i) highest = fmaxf(highest, scores[i / 2 * 4 + row * 2 + i % 2]);
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    const float offset = fmaxf(state.offset[row], highest * scale);
    factor[row] = ptx::exp2_fast(state.offset[row] - offset);
    state.offset[row] = offset;
    state.sum[row] *= factor[row];
  }
  return {factor[0], factor[1]};
}

// Clears a unit's values outside rows [low, high). Every warpgroup writes the same zeros, so each waits for itself
// alone.
__device__ inline void clear_values(std::uint8_t* values, int low, int high, int consumer) {
  auto* units = reinterpret_cast<uint4*>(values);
  for (int i = static_cast<int>(threadIdx.x % 128); i < PrefillConfig::kKeys * 8; i += 128) {
    if (i < low * 8 || i >= high * 8) units[i] = {0, 0, 0, 0};
  }
  ptx::fence_async_shared();
  ptx::named_sync(1 + consumer, 128);
}

// Divides by the whole sum (the quad's four threads share a row) and writes the valid tokens, 16 bytes a thread.
__device__ inline void store_output(PrefillShared& shared, const AttentionParams& params, const PrefillTile& tile,
                                    int consumer, const float (&sum)[2], const Output& out) {
  using C = PrefillConfig;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float inverse[2] = {1.f / sum[0], 1.f / sum[1]};
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

// What a consumer warpgroup carries from tile to tile.
struct PrefillConsumer {
  PrefillShared& shared;
  const AttentionParams& params;
  int consumer;
  int at = 0;     // units before this tile
  int taken = 0;  // tiles before this one

  __device__ static void release(std::uint64_t* empty) {
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(empty);
  }
  __device__ void wait_unit(int unit) { ptx::barrier_wait(&shared.full[stage_of(unit)], parity_of(unit)); }
  __device__ void release_unit(int unit) { release(&shared.empty[stage_of(unit)]); }
  __device__ const std::uint8_t* keys(int unit) { return shared.keys[stage_of(unit)]; }
  __device__ std::uint8_t* values(int unit) { return shared.values[stage_of(unit)]; }

  // Position of this thread's first row; the next token is its second.
  __device__ int first_position(const PrefillTile& tile) const {
    return tile.position + consumer * 8 + static_cast<int>(threadIdx.x / 32 % 4) * 2;
  }

  // The next tile and its query rows of this warpgroup are in shared memory.
  __device__ bool wait_tile() {
    ptx::barrier_wait(&shared.query_full[taken % 2], taken / 2 % 2);
    return tile().units > 0;
  }
  __device__ const PrefillTile& tile() const { return shared.tiles[taken % 2]; }
  __device__ const std::uint8_t* query() const { return shared.query[taken % 2] + consumer * 64 * 128; }
  __device__ void release_tile() {
    __syncwarp();
    release(&shared.query_empty[taken++ % 2]);
  }

  // The sink: the least offset, and its exponential in the sum, once a row.
  __device__ RowState start(const PrefillTile& tile) const {
    const float sink =
        ptx::bf16_to_float(
            params.sinks[tile.kv_head * PrefillConfig::kGroupHeads + static_cast<int>(threadIdx.x % 32 / 4)]) *
        1.44269504f;
    const float one = threadIdx.x % 4 == 0 ? 1.f : 0.f;
    return {{sink, sink}, {one, one}};
  }

  // Of the first unit, before its values are used: those past the context, and those before the oldest box, which
  // repeat it and so may lie past the context too.
  __device__ void clear_stale_values(const PrefillTile& tile) {
    if (tile.end <= tile.context) return;
    const int begin = tile.end - PrefillConfig::kKeys;
    clear_values(values(at), tile.oldest / params.box_rows * params.box_rows - begin, tile.context - begin, consumer);
  }

  __device__ static void whole_sums(const RowState& state, float (&sum)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sum[row] = state.sum[row];
      sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], 1);
      sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], 2);
    }
  }

  // Of unit `unit`, counted from the block's first.
  __device__ void mask(const PrefillTile& tile, int unit, Scores& scores) const {
    mask_scores(scores, tile.end - (unit - at + 1) * PrefillConfig::kKeys, first_position(tile), params.window);
  }

  // The first unit that may hold positions which this warpgroup's newest token does not see.
  __device__ int first_masked(const PrefillTile& tile) const {
    const int newest = tile.position + consumer * 8 + 7;
    const int oldest = params.window > 0 ? max(0, newest - params.window + 1) : 0;
    return at + (tile.end - oldest) / PrefillConfig::kKeys;
  }

  // A step of the pipeline. Before it: p holds `unit`'s probabilities, `next` the scores of the unit after, nothing
  // runs. Q K^T of the unit after that, to `spare`, and P V of this one run while p_next becomes the next one's.
  template <int kPolynomialEvery>
  __device__ void step(Scores& spare, const Probabilities& p, Scores& next, Probabilities& p_next, Output& out,
                       RowState& state, int unit, int last, int masked) {
    ptx::wgmma_fence();
    issue_scores(query(), keys(unit + 2), spare);  // of an old stage where there are no more: not looked at
    ptx::wgmma_commit();
    ptx::wgmma_fence();
    issue_output(p, values(unit), out);
    ptx::wgmma_commit();
    if (unit + 1 >= masked) mask(tile(), unit + 1, next);
    take_exponentials<kPolynomialEvery>(next, p_next, state, params.scale_log2);
    take_now(state);
    if (unit + 3 < last) wait_unit(unit + 3);  // a branch, which keeps the exponentials before what follows
    ptx::wgmma_wait<0>();
    release_unit(unit);
  }

  template <int kPolynomialEvery>
  __device__ void run() {
    Scores even, odd;
    Probabilities p_even, p_odd;
    Output out;
#pragma unroll
    for (int i = 0; i < PrefillConfig::kHeadDim / 2; ++i) out[i] = 0;
    RowState state = start(tile());
    int unit = at;
    const int last = at + tile().units, masked = first_masked(tile());
    wait_unit(unit);
    ptx::wgmma_fence();
    issue_scores(query(), keys(unit), even);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    const bool several = unit + 1 < last;
    if (several) wait_unit(unit + 1);
    ptx::wgmma_fence();
    issue_scores(query(), keys(unit + 1), odd);
    ptx::wgmma_commit();
    mask(tile(), unit, even);
    raise_offsets(even, state, params.scale_log2);
    take_exponentials<0>(even, p_even, state, params.scale_log2);
    take_now(state);
    if (unit + 2 < last) wait_unit(unit + 2);
    ptx::wgmma_wait<0>();
    clear_stale_values(tile());
#pragma unroll 1
    for (; unit + 2 < last; unit += 2) {
      step<kPolynomialEvery>(even, p_even, odd, p_odd, out, state, unit, last, masked);
      step<kPolynomialEvery>(odd, p_odd, even, p_even, out, state, unit + 1, last, masked);
    }
    // One or two are left: p_even holds the first's probabilities, odd the second's scores.
    ptx::wgmma_fence();
    issue_output(p_even, values(unit), out);
    ptx::wgmma_commit();
    if (unit + 1 < last) {
      if (unit + 1 >= masked) mask(tile(), unit + 1, odd);
      take_exponentials<kPolynomialEvery>(odd, p_odd, state, params.scale_log2);
      take_now(state);
    }
    ptx::wgmma_wait<0>();
    release_unit(unit);
    if (unit + 1 < last) {
      ptx::wgmma_fence();
      issue_output(p_odd, values(unit + 1), out);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      release_unit(unit + 1);
    }
    at = last;
    float sum[2];
    whole_sums(state, sum);
    mark(tile(), sum);
    store_output(shared, params, tile(), consumer, sum, out);
  }

  // The tile is to be computed again if a row's sum has grown too large (NaN counts).
  __device__ void mark(const PrefillTile& tile, const float (&sum)[2]) {
    const int token = first_position(tile) - tile.position;
    if ((token < tile.tokens && !(sum[0] <= 0x1p64f)) || (token + 1 < tile.tokens && !(sum[1] <= 0x1p64f))) {
      const int bit = tile.round % PrefillConfig::kRepeats;
      atomicOr(&shared.again[bit / 32], 1u << (bit % 32));
    }
  }

  // With running maxima, one unit after the other: any scores, any growth.
  __device__ void run_again() {
    Scores scores;
    Probabilities p;
    Output out;
    RowState state = start(tile());
#pragma unroll
    for (int i = 0; i < PrefillConfig::kHeadDim / 2; ++i) out[i] = 0;
    const int last = at + tile().units;
#pragma unroll 1
    for (int unit = at; unit < last; ++unit) {
      wait_unit(unit);
      ptx::wgmma_fence();
      issue_scores(query(), keys(unit), scores);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      mask(tile(), unit, scores);
      const float2 factor = raise_offsets(scores, state, params.scale_log2);
      take_exponentials<0>(scores, p, state, params.scale_log2);
#pragma unroll
      for (int i = 0; i < PrefillConfig::kHeadDim / 2; ++i) out[i] *= i % 4 < 2 ? factor.x : factor.y;
      if (unit == at) clear_stale_values(tile());
      ptx::wgmma_fence();
      issue_output(p, values(unit), out);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      release_unit(unit);
    }
    at = last;
    float sum[2];
    whole_sums(state, sum);
    store_output(shared, params, tile(), consumer, sum, out);
  }
};

template <int kPolynomialEvery>
__device__ inline void prefill_consume(PrefillShared& shared, const AttentionParams& params, int consumer) {
  PrefillConsumer own{shared, params, consumer};
#pragma unroll 1
  for (; own.wait_tile(); own.release_tile()) own.run<kPolynomialEvery>();
  own.release_tile();
  PrefillConsumer::release(&shared.finished);
#pragma unroll 1
  for (; own.wait_tile(); own.release_tile()) own.run_again();
}

template <int kPolynomialEvery>
__global__ void __launch_bounds__(PrefillConfig::kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ AttentionParams params) {
  using C = PrefillConfig;
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  for (int i = static_cast<int>(threadIdx.x); i < C::kRepeats / 32; i += C::kThreads) shared.again[i] = 0;
  if (threadIdx.x == 0) {
    constexpr int kWarps = 4 * C::kConsumers;
    for (int slot = 0; slot < 2; ++slot) {
      ptx::barrier_init(&shared.query_full[slot], 1);
      ptx::barrier_init(&shared.query_empty[slot], kWarps);
    }
    ptx::barrier_init(&shared.finished, kWarps);
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], kWarps);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::dependency_wait();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == 0) prefill_produce(shared, params);
  } else {
    ptx::registers_increase<232>();
    prefill_consume<kPolynomialEvery>(shared, params, warpgroup - 1);
    ptx::dependents_launch();
  }
}

template <int kPolynomialEvery>
void launch_attention_prefill_instance(const AttentionParams& params, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&attention_prefill_kernel<kPolynomialEvery>, "attention_prefill",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(PrefillConfig::kThreads),
                      .shared_bytes = sizeof(PrefillShared) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
