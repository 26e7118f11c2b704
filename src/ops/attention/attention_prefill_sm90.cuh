// Attention over many new rows a sequence (attention.h), bf16, head_dim 64, 8 query heads a KV head.
//
// Bound: a score costs 256 FLOPs of WGMMA (1/16 clock an SM at the bf16 peak) and one exponential (1/16 clock on the
// special-function unit), so both must overlap; and every instruction a score costs power, which long runs are short
// of.
//
// Mapping: a tile is 24 tokens x the 8 query heads of one KV head = 192 rows, so that the causal edge and the window
// cost 24 tokens, not 192. A persistent grid walks the tiles, long ones first, every other round backwards, so that
// blocks end together. In a block one producer thread loads Q, and K and V in units of kKeys positions, by TMA; three
// consumer warpgroups own 64 rows each. Row r of a tile is token r / 8, head r % 8, so a thread holds two tokens of one
// head.
//
// Units are counted back from the newest position, so the causal edge lies within the first, and older ones need no
// mask but at the far end. A consumer issues S = Q K^T of a unit, then O += P V of the one before, and takes most
// exponentials of S while P V runs; warpgroups with long contexts issue in turn, so that one's exponentials run beside
// another's products. P is multiplied by [V | 1]: the row sums are columns 64 on of O.
//
// The exponent's offset is exact for the first unit (its maximum and the sink) and then stays: sums and products are
// f32 and probabilities bf16, whose relative precision does not depend on size, so an offset below the maximum costs
// nothing until numbers leave f32's range. That saves a third of the instructions (maxima, factors, rescaling). A row
// whose sum has grown past 2^64 at the end says that it was not enough: its tile is computed again, with running
// maxima, after the block's other tiles.
//
// Where the query carries the scale (scale_log2 is 1) there is no offset at all, and no instruction between a product
// and its exponential: f32 has room for scores from -44 to 69 (nats), the row's sum tells.
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

// In dynamic shared memory, which begins at a multiple of 1024: so do all tiles here.
template <int kKeys>
struct PrefillShared {
  using C = PrefillConfig;
  using U = PrefillUnits<kKeys>;
  std::uint8_t query[2][C::kQueryBytes];
  std::uint8_t out[C::kQueryBytes];
  std::uint8_t keys[U::kStages][U::kBytes];
  std::uint8_t values[U::kStages][U::kBytes];
  std::uint8_t ones[C::kOnesBytes];  // 16 positions of what stands beside V
  PrefillTile tiles[2];              // those of `query`
  std::uint64_t query_full[2], query_empty[2];
  std::uint64_t full[U::kStages], empty[U::kStages];
  std::uint64_t finished;                 // all tiles, but for those to be computed again
  std::uint32_t again[C::kRepeats / 32];  // a bit a round
};

// The block's tile of a round, of `tiles` of each KV head. Tiles are listed long ones first; heads_at_once heads go
// through the list together, then the next ones backwards, so that lengths have no steps, and the last ones forwards.
template <int kKeys>
__device__ inline bool prefill_tile(const AttentionParams& params, int tiles, int round, PrefillTile& tile) {
  if (tiles == 0) return false;
  const int place = round % 2 == 0 ? static_cast<int>(blockIdx.x) : static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int index = round * static_cast<int>(gridDim.x) + place;
  const int heads = params.heads_at_once, pass = index / (tiles * heads), passes = params.kv_heads / heads;
  if (pass >= passes) return false;
  const int within = index - pass * tiles * heads, place_in_list = within / heads;
  const int entry_index = (passes - pass) % 2 == 1 ? place_in_list : tiles - 1 - place_in_list;
  tile.round = round;
  tile.kv_head = pass * heads + within - place_in_list * heads;
  const int2 entry = params.tile_list[entry_index];
  const int first_row = params.row_offsets[entry.x];
  const int rows = params.row_offsets[entry.x + 1] - first_row;
  tile.row = first_row + entry.y;
  tile.tokens = min(PrefillConfig::kTokens, rows - entry.y);
  tile.context = params.context_lengths[entry.x];
  tile.position = tile.context - rows + entry.y;
  tile.oldest = params.window > 0 ? max(0, tile.position - params.window + 1) : 0;
  tile.end = (tile.position + tile.tokens + params.box_rows - 1) / params.box_rows * params.box_rows;
  tile.units = (tile.end - tile.oldest + kKeys - 1) / kKeys;
  tile.table = entry.x * params.pages_max - params.first_pages[entry.x];
  return true;
}

// A place in the endless sequence of units: its stage, and the parity of the barriers there.
template <int kKeys>
__device__ inline int stage_of(int unit) {
  return unit & (PrefillUnits<kKeys>::kStages - 1);
}
template <int kKeys>
__device__ inline int parity_of(int unit) {
  return static_cast<unsigned>(unit) / PrefillUnits<kKeys>::kStages & 1;
}

// --- producer
// ------------------------------------------------------------------------------------------------------------

// A tile's Q, K and V; returns the number of units so far. Boxes before the oldest position's page: that one again;
// hidden.
template <int kKeys>
__device__ inline int prefill_load_tile(PrefillShared<kKeys>& shared, const AttentionParams& params, int slot, int at) {
  using C = PrefillConfig;
  const PrefillTile& tile = shared.tiles[slot];
  const int kv_head = tile.kv_head;
  ptx::barrier_arrive_expect(&shared.query_full[slot], C::kQueryBytes);
  ptx::tma_load_3d(&params.query, &shared.query_full[slot], shared.query[slot], 0, kv_head * C::kGroupHeads, tile.row);
  const int* table = params.page_table + tile.table;
  const int first = tile.oldest >> params.page_shift << params.page_shift, last = at + tile.units;
  int begin = tile.end - kKeys;
#pragma unroll 1
  for (; at < last; ++at, begin -= kKeys) {
    const int stage = stage_of<kKeys>(at);
    ptx::barrier_wait(&shared.empty[stage], parity_of<kKeys>(at) ^ 1);
    ptx::barrier_arrive_expect(&shared.full[stage], 2 * PrefillUnits<kKeys>::kBytes);
#pragma unroll 1
    for (int box = 0; box < kKeys; box += params.box_rows) {
      const int position = max(begin + box, first), page = position >> params.page_shift;
      const int row =
          ((table[page] * params.kv_heads + kv_head) << params.page_shift) + position - (page << params.page_shift);
      ptx::tma_load_2d(&params.keys, &shared.full[stage], shared.keys[stage] + box * 128, 0, row, ptx::kEvictLast);
      ptx::tma_load_2d(&params.values, &shared.full[stage], shared.values[stage] + box * 128, 0, row, ptx::kEvictLast);
    }
  }
  return at;
}

// One thread. `load` takes a tile as prefill_load_tile does. Tiles, then one without units; when the consumers have
// finished those, the marked ones again, then another without units.
template <int kKeys, class Load>
__device__ inline void prefill_produce(PrefillShared<kKeys>& shared, const AttentionParams& params, Load&& load) {
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
      if (round >= rounds || !prefill_tile<kKeys>(params, tiles, round, shared.tiles[slot])) {
        rounds = min(rounds, round);
        shared.tiles[slot].units = 0;
        ptx::barrier_arrive(&shared.query_full[slot]);
        break;
      }
      at = load(slot, at);
    }
    if (pass == 0) ptx::barrier_wait(&shared.finished, 0);
  }
}

// --- consumer
// ------------------------------------------------------------------------------------------------------------

template <int kKeys>
using Scores = float[kKeys / 2];  // 64 rows x kKeys positions, over a warpgroup
template <int kKeys>
using Probabilities = std::uint32_t[kKeys / 4];
using Output = float[PrefillConfig::kOutColumns / 2];

// The exponents' offsets (log2 units) of a thread's two rows.
struct RowState {
  float offset[2];
};

// The same number in all lanes. It says so to the compiler: what is made of it stays in the registers of the warp,
// where the tensor cores' instructions want their descriptors.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// ptx::swizzle128_descriptor in halves: the upper word is a constant; in the lower one, of addresses in units of 16
// bytes, bits 16 on are the distance from B's columns 0..63 to the next ones.
__device__ inline std::uint32_t shared_units(const void* pointer) { return ptx::shared_address(pointer) >> 4; }
__device__ inline std::uint64_t descriptor(std::uint32_t low) {
  std::uint64_t whole;
  asm("mov.b64 %0, {%1, %2};" : "=l"(whole) : "r"(low), "n"((1024 >> 4) | (1 << 30)));
  return whole;
}

// `query`: this warpgroup's 64 rows; `keys`: a unit's. In units of 16 bytes.
template <int kKeys>
__device__ inline void issue_scores(std::uint32_t query, std::uint32_t keys, Scores<kKeys>& scores) {
#pragma unroll
  for (int step = 0; step < PrefillConfig::kHeadDim / 16; ++step) {
    ptx::WgmmaBf16<kKeys>::template ss<false>(scores, descriptor(query + 2 * step), descriptor(keys + 2 * step),
                                              step != 0);
  }
}

// Columns 64..71 of [V | 1] are the same 16 rows of ones for every 16 positions: as V moves on, they come nearer.
template <int kKeys>
__device__ inline void issue_output(const Probabilities<kKeys>& p, std::uint32_t values, std::uint32_t ones,
                                    Output& out) {
  const std::uint32_t low = values + ((ones - values) << 16);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {  // 16 positions: 2048 bytes of V
    const std::uint32_t a[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
    ptx::WgmmaBf16<PrefillConfig::kOutColumns>::rs<true>(out, a, descriptor(low + 128 * step - (128 * step << 16)), 1);
  }
}

// Hides positions after the row's own, before its window, and before the context. `position` is that of this thread's
// first row, `begin` that of the unit; rows r and r + 8 of a warp are neighbouring tokens.
template <int kKeys>
__device__ inline void mask_scores(Scores<kKeys>& scores, int begin, int position, int window) {
  const int ahead = begin + static_cast<int>(threadIdx.x % 4) * 2 - position;
  const int behind = window > 0 ? -window : -0x3fffffff;
  const int low0 = max(behind, -position - 1), low1 = max(behind, -position - 2);
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    const int column = ahead + i / 4 * 8 + i % 2 - (i % 4) / 2;
    if (column > 0 || column <= (i % 4 < 2 ? low0 : low1)) scores[i] = -INFINITY;
  }
}

// Pairs kFirst .. kLast - 1 of scores become 2^(score * scale - offset), or, kScaled, 2^score.
template <bool kScaled, int kFirst, int kLast, int kKeys>
__device__ inline void take_exponentials(Scores<kKeys>& scores, const RowState& state, float scale) {
#pragma unroll
  for (int i = 2 * kFirst; i < 2 * kLast; ++i) {
    scores[i] = ptx::exp2_fast(kScaled ? scores[i] : fmaf(scores[i], scale, -state.offset[i / 2 % 2]));
  }
}
template <int kKeys>
__device__ inline void pack(const Scores<kKeys>& scores, Probabilities<kKeys>& p) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) p[i] = ptx::pack_bf16(scores[2 * i], scores[2 * i + 1]);
}

// The assembler would sink exponentials below the wait for the tensor cores, which they are there to shorten. It does
// not where a branch between may use them: this one, never taken as units count from zero, costs two instructions.
template <int kCount, int kKeys>
__device__ inline void hold(Scores<kKeys>& scores, int unit) {
  if (unit >= 0) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("add.f32 %0, %0, 0f3f800000;" : "+f"(scores[i]));
}

// Raises the offsets to the maxima of these scores; returns the factors on earlier outputs and sums.
template <int kKeys>
__device__ inline float2 raise_offsets(const Scores<kKeys>& scores, RowState& state, float scale) {
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) highest = fmaxf(highest, scores[i / 2 * 4 + row * 2 + i % 2]);
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    const float offset = fmaxf(state.offset[row], highest * scale);
    factor[row] = ptx::exp2_fast(state.offset[row] - offset);
    state.offset[row] = offset;
  }
  return {factor[0], factor[1]};
}

// No offsets: the factor on sums and outputs so far.
__device__ inline float2 drop_offsets(RowState& state) {
  const float2 factor = {ptx::exp2_fast(state.offset[0]), ptx::exp2_fast(state.offset[1])};
  state.offset[0] = state.offset[1] = 0;
  return factor;
}

// Clears a unit's values outside rows [low, high). Every warpgroup writes the same zeros, so each waits for itself
// alone.
template <int kKeys>
__device__ inline void clear_values(std::uint8_t* values, int low, int high, int consumer) {
  auto* units = reinterpret_cast<uint4*>(values);
  for (int i = static_cast<int>(threadIdx.x % 128); i < kKeys * 8; i += 128) {
    if (i < low * 8 || i >= high * 8) units[i] = {0, 0, 0, 0};
  }
  ptx::fence_async_shared();
  ptx::named_sync(1 + consumer, 128);
}

// Divides by the sum and writes the valid tokens, 16 bytes a thread.
template <int kKeys>
__device__ inline void store_output(PrefillShared<kKeys>& shared, const AttentionParams& params,
                                    const PrefillTile& tile, int consumer, const Output& out) {
  using C = PrefillConfig;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float inverse[2] = {1.f / out[C::kSum], 1.f / out[C::kSum + 2]};
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

// What a consumer warpgroup carries from tile to tile. kScaled: scale_log2 is 1.
template <int kKeys, bool kScaled>
struct PrefillConsumer {
  PrefillShared<kKeys>& shared;
  const AttentionParams& params;
  int consumer;   // uniform
  int at = 0;     // units before this tile
  int taken = 0;  // tiles before this one

  // A window's few units are over before turns would help.
  static constexpr bool kTurns = kKeys == 128;
  // Pairs of exponentials, of kKeys / 4, taken before the wait for P V; the others go together with packing.
  static constexpr int kBeforeWait = kKeys * 3 / 16;

  __device__ static void release(std::uint64_t* empty) { ptx::barrier_arrive_warp(empty); }
  __device__ void wait_unit(int unit) {
    ptx::barrier_wait(&shared.full[stage_of<kKeys>(unit)], parity_of<kKeys>(unit));
  }
  __device__ void release_unit(int unit) { release(&shared.empty[stage_of<kKeys>(unit)]); }
  // Has it come? Asked ahead, so that the answer is there when it is needed.
  __device__ bool unit_ready(int unit) {
    return ptx::barrier_passed(&shared.full[stage_of<kKeys>(unit)], parity_of<kKeys>(unit));
  }
  // In units of 16 bytes.
  __device__ std::uint32_t stage_units(int unit) const {
    return static_cast<std::uint32_t>(uniform(stage_of<kKeys>(unit)) * (PrefillUnits<kKeys>::kBytes / 16));
  }
  __device__ std::uint32_t keys(int unit) const { return shared_units(shared.keys[0]) + stage_units(unit); }
  __device__ std::uint32_t values(int unit) const { return shared_units(shared.values[0]) + stage_units(unit); }
  __device__ std::uint32_t ones() const { return shared_units(shared.ones); }

  // Warpgroups issue their products in turn, so that while one's run, the others take exponentials.
  __device__ void begin_turns() {
    if (consumer == PrefillConfig::kConsumers - 1) pass_turn();
  }
  __device__ void wait_turn() {
    if (kTurns) ptx::named_sync(8 + consumer, 256);
  }
  __device__ void pass_turn() {
    if (kTurns) ptx::named_arrive(consumer == PrefillConfig::kConsumers - 1 ? 8 : 9 + consumer, 256);
  }

  // Position of this thread's first row; the next token is its second.
  __device__ int first_position(const PrefillTile& tile) const {
    return tile.position + consumer * 8 + static_cast<int>(threadIdx.x / 32 % 4) * 2;
  }

  // The next tile and its query rows of this warpgroup are in shared memory.
  __device__ bool wait_tile() {
    ptx::barrier_wait(&shared.query_full[taken % 2], taken / 2 % 2);
    return uniform(tile().units) > 0;
  }
  __device__ const PrefillTile& tile() const { return shared.tiles[taken % 2]; }
  __device__ std::uint32_t query() const {
    return shared_units(shared.query[0]) +
           static_cast<std::uint32_t>(uniform(taken % 2) * (PrefillConfig::kQueryBytes / 16) + consumer * 64 * 8);
  }
  __device__ void release_tile() {
    __syncwarp();
    release(&shared.query_empty[taken++ % 2]);
  }

  // The sink: the least offset, and its exponential in the sum, once a row.
  __device__ RowState start(const PrefillTile& tile, Output& out) const {
    const float sink =
        ptx::bf16_to_float(
            params.sinks[tile.kv_head * PrefillConfig::kGroupHeads + static_cast<int>(threadIdx.x % 32 / 4)]) *
        1.44269504f;
#pragma unroll
    for (int i = 0; i < PrefillConfig::kOutColumns / 2; ++i) out[i] = i < PrefillConfig::kSum ? 0.f : 1.f;
    return {{sink, sink}};
  }
  __device__ static void scale_output(const float2& factor, Output& out) {
#pragma unroll
    for (int i = 0; i < PrefillConfig::kOutColumns / 2; ++i) out[i] *= i % 4 < 2 ? factor.x : factor.y;
  }

  // Of the first unit, before its values are used: those past the context, and those before the oldest box, which
  // repeat it and so may lie past the context too.
  __device__ void clear_stale_values(const PrefillTile& tile) {
    if (tile.end <= tile.context) return;
    const int begin = tile.end - kKeys;
    clear_values<kKeys>(shared.values[stage_of<kKeys>(at)], tile.oldest / params.box_rows * params.box_rows - begin,
                        tile.context - begin, consumer);
  }

  // Of unit `unit`, counted from the block's first.
  __device__ void mask(const PrefillTile& tile, int unit, Scores<kKeys>& scores) const {
    mask_scores<kKeys>(scores, tile.end - (unit - at + 1) * kKeys, first_position(tile), params.window);
  }

  // The first unit that may hold positions which this warpgroup's newest token does not see.
  __device__ int first_masked(const PrefillTile& tile) const {
    const int newest = tile.position + consumer * 8 + 7;
    const int oldest = params.window > 0 ? max(0, newest - params.window + 1) : 0;
    return at + (tile.end - oldest) / kKeys;
  }

  __device__ void run() {
    Scores<kKeys> scores;
    Probabilities<kKeys> p;
    Output out;
    RowState state = start(tile(), out);
    const int last = at + uniform(tile().units), masked = uniform(first_masked(tile()));
    const std::uint32_t q = query();
    const float scale = params.scale_log2;
    wait_unit(at);
    ptx::wgmma_fence();
    issue_scores<kKeys>(q, keys(at), scores);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    mask(tile(), at, scores);
    scale_output(kScaled ? drop_offsets(state) : raise_offsets<kKeys>(scores, state, scale), out);
    take_exponentials<kScaled, 0, kKeys / 4, kKeys>(scores, state, scale);
    pack<kKeys>(scores, p);
    clear_stale_values(tile());
    bool ready = false;
#pragma unroll 1
    for (int unit = at + 1; unit < last; ++unit) {
      const std::uint32_t k = keys(unit), v = values(unit - 1);
      if (!ready) wait_unit(unit);
      wait_turn();
      ptx::wgmma_fence();
      issue_scores<kKeys>(q, k, scores);
      ptx::wgmma_commit();
      issue_output<kKeys>(p, v, ones(), out);
      ptx::wgmma_commit();
      pass_turn();
      ptx::wgmma_wait<1>();
      if (unit >= masked) mask(tile(), unit, scores);
      take_exponentials<kScaled, 0, kBeforeWait, kKeys>(scores, state, scale);
      hold<2 * kBeforeWait, kKeys>(scores, unit);
      ready = unit_ready(unit + 1);
      ptx::wgmma_wait<0>();
      release_unit(unit - 1);
      take_exponentials<kScaled, kBeforeWait, kKeys / 4, kKeys>(scores, state, scale);
      pack<kKeys>(scores, p);
    }
    ptx::wgmma_fence();
    issue_output<kKeys>(p, values(last - 1), ones(), out);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    release_unit(last - 1);
    at = last;
    mark(tile(), out);
    store_output(shared, params, tile(), consumer, out);
  }

  // The tile is to be computed again if a row's sum has grown too large (NaN counts) or, without offsets, is so small
  // that what fell below f32's range may have been missed.
  __device__ void mark(const PrefillTile& tile, const Output& out) {
    constexpr float kLeast = kScaled ? 0x1p-64f : 0.f, kMost = kScaled ? 0x1p100f : 0x1p64f;
    const int token = first_position(tile) - tile.position;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float sum = out[PrefillConfig::kSum + 2 * row];
      if (token + row < tile.tokens && !(sum >= kLeast && sum <= kMost)) {
        const int bit = tile.round % PrefillConfig::kRepeats;
        atomicOr(&shared.again[bit / 32], 1u << (bit % 32));
      }
    }
  }

  // With running maxima, one unit after the other: any scores, any growth.
  __device__ void run_again() {
    Scores<kKeys> scores;
    Probabilities<kKeys> p;
    Output out;
    RowState state = start(tile(), out);
    const int last = at + uniform(tile().units);
#pragma unroll 1
    for (int unit = at; unit < last; ++unit) {
      wait_unit(unit);
      ptx::wgmma_fence();
      issue_scores<kKeys>(query(), keys(unit), scores);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      mask(tile(), unit, scores);
      scale_output(raise_offsets<kKeys>(scores, state, params.scale_log2), out);
      take_exponentials<false, 0, kKeys / 4, kKeys>(scores, state, params.scale_log2);
      pack<kKeys>(scores, p);
      if (unit == at) clear_stale_values(tile());
      ptx::wgmma_fence();
      issue_output<kKeys>(p, values(unit), ones(), out);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      release_unit(unit);
    }
    at = last;
    store_output(shared, params, tile(), consumer, out);
  }
};

template <int kKeys, bool kScaled>
__device__ inline void prefill_consume(PrefillShared<kKeys>& shared, const AttentionParams& params, int consumer) {
  PrefillConsumer<kKeys, kScaled> own{shared, params, consumer};
  own.begin_turns();
#pragma unroll 1
  for (; own.wait_tile(); own.release_tile()) own.run();
  own.release_tile();
  own.release(&shared.finished);
#pragma unroll 1
  for (; own.wait_tile(); own.release_tile()) own.run_again();
}

// By all threads, at the start, before a __syncthreads().
template <int kKeys>
__device__ inline void prefill_fill(PrefillShared<kKeys>& shared) {
  if (ptx::shared_address(shared.query) % 1024 != 0) __trap();
  for (int i = static_cast<int>(threadIdx.x); i < PrefillConfig::kRepeats / 32; i += PrefillConfig::kThreads) {
    shared.again[i] = 0;
  }
  for (int i = static_cast<int>(threadIdx.x); i < PrefillConfig::kOnesBytes / 4; i += PrefillConfig::kThreads) {
    reinterpret_cast<std::uint32_t*>(shared.ones)[i] = 0x3f803f80;  // two ones in bf16
  }
  ptx::fence_async_shared();
}

template <int kKeys, bool kScaled>
__global__ void __launch_bounds__(PrefillConfig::kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ AttentionParams params) {
  using C = PrefillConfig;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared<kKeys>*>(raw);
  prefill_fill(shared);
  if (threadIdx.x == 0) {
    constexpr int kWarps = 4 * C::kConsumers;
    for (int slot = 0; slot < 2; ++slot) {
      ptx::barrier_init(&shared.query_full[slot], 1);
      ptx::barrier_init(&shared.query_empty[slot], kWarps * ptx::kWarpArrivals);
    }
    ptx::barrier_init(&shared.finished, kWarps * ptx::kWarpArrivals);
    for (int stage = 0; stage < PrefillUnits<kKeys>::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], kWarps * ptx::kWarpArrivals);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::dependency_wait();
  const int warpgroup = uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    ptx::registers_decrease<32>();
    if (threadIdx.x == 0) {
      prefill_produce<kKeys>(shared, params,
                             [&](int slot, int at) { return prefill_load_tile(shared, params, slot, at); });
    }
  } else {
    ptx::registers_increase<160>();
    prefill_consume<kKeys, kScaled>(shared, params, warpgroup - 1);
    ptx::dependents_launch();
  }
}

template <int kKeys, bool kScaled>
void launch_attention_prefill_instance(const AttentionParams& params, int blocks, cudaStream_t stream) {
  static_assert(sizeof(PrefillShared<kKeys>) <= 227 * 1024);
  rose::cuda::launch(&attention_prefill_kernel<kKeys, kScaled>, "attention_prefill",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(PrefillConfig::kThreads),
                      .shared_bytes = sizeof(PrefillShared<kKeys>),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
