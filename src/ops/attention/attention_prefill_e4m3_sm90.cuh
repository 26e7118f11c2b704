// attention_prefill_sm90.cuh over e4m3 keys and values.
//
// The consumers are the same and find bf16 in the same places. The producer's copies land in a ring of pieces (keys or
// values of a unit, half the bytes) instead, and the three warps of the producer's warpgroup that otherwise have
// nothing to do widen each piece into the unit's stage. Widening is exact, so NaN past a context's end stays NaN, and
// is cleared where bf16's is.
//
// Bound: the tensor cores, as before; a unit's widening is 16 (units of 128) thousand elements for 96 threads.
#pragma once

#include "ops/attention/attention_prefill_sm90.cuh"
#include "ops/ptx/ring.cuh"

namespace rose::ops::cuda {

inline constexpr int kWideningWarps = 3;

template <int kKeys>
struct PrefillE4m3Shared {
  static constexpr int kPieceBytes = kKeys * PrefillConfig::kHeadDim;
  static constexpr int kPieces = 24 * 1024 / kPieceBytes;
  using Ring = ptx::Ring<kPieces>;
  std::uint8_t pieces[kPieces][kPieceBytes];  // lines of 128 bytes, two positions each, swizzled
  PrefillShared<kKeys> wide;                  // at a multiple of 1024
  std::uint64_t arrived[kPieces], taken[kPieces];
};

// As prefill_load_tile; one thread.
template <int kKeys>
__device__ inline int prefill_load_tile_e4m3(PrefillE4m3Shared<kKeys>& shared, const AttentionParams& params, int slot,
                                             int at, typename PrefillE4m3Shared<kKeys>::Ring& ring) {
  using C = PrefillConfig;
  const PrefillTile& tile = shared.wide.tiles[slot];
  const int kv_head = tile.kv_head;
  std::uint64_t* query_full = &shared.wide.query_full[slot];
  ptx::barrier_arrive_expect(query_full, C::kQueryBytes);
  ptx::tma_load_3d(&params.query, query_full, shared.wide.query[slot], 0, kv_head * C::kGroupHeads, tile.row);
  const int* table = params.page_table + tile.table;
  const int first = tile.oldest >> params.page_shift << params.page_shift, last = at + tile.units;
  int begin = tile.end - kKeys;
  const auto take = [&] {  // the next piece, once it is free
    const int piece = ring.stage;
    ptx::barrier_wait(&shared.taken[piece], ring.phase ^ 1);
    ptx::barrier_arrive_expect(&shared.arrived[piece], PrefillE4m3Shared<kKeys>::kPieceBytes);
    ring.advance();
    return piece;
  };
#pragma unroll 1
  for (; at < last; ++at, begin -= kKeys) {
    const int keys = take(), values = take();
#pragma unroll 1
    for (int box = 0; box < kKeys; box += params.box_rows) {
      const int position = max(begin + box, first), page = position >> params.page_shift;
      const int row =
          ((table[page] * params.kv_heads + kv_head) << params.page_shift) + position - (page << params.page_shift);
      ptx::tma_load_2d(&params.keys, &shared.arrived[keys], shared.pieces[keys] + box * 64, 0, row / 2,
                       ptx::kEvictLast);
      ptx::tma_load_2d(&params.values, &shared.arrived[values], shared.pieces[values] + box * 64, 0, row / 2,
                       ptx::kEvictLast);
    }
  }
  return at;
}

// By one of the widening warps: its share of kKeys rows of 64 e4m3 becomes rows of 64 bf16 under the 128-byte swizzle.
// A warp takes four rows (two lines) at a time, a lane eight elements: eight lanes write a row, sixteen read a line.
// Which of a line's 16-byte pieces is whose changes from group to group by an exclusive or.
//
// Addresses are shared-memory ones, of 32 bits: this warpgroup has 32 registers a thread.
template <int kKeys>
__device__ inline void widen_piece(std::uint32_t piece, std::uint32_t to) {
  const int lane = threadIdx.x % 32, row = lane / 8, unit = lane % 8;
  const auto from_lane =
      static_cast<std::uint32_t>(row / 2 * 128 + ((row % 2 * 4 + unit / 2) ^ row / 2) * 16 + unit % 2 * 8);
  const auto to_lane = static_cast<std::uint32_t>(row * 128 + (unit ^ row) * 16);
  const auto load = [&](unsigned group) {
    uint2 codes;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(codes.x), "=r"(codes.y)
                 : "r"(piece + group * 256 + (from_lane ^ (group & 3) << 5))
                 : "memory");
    return codes;
  };
  const auto store = [&](unsigned group, const uint2& codes) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + group * 512 + (to_lane ^ (group & 1) << 6)),
                 "r"(ptx::e4m3_to_bf16(codes.x)), "r"(ptx::e4m3_to_bf16(codes.x >> 16)),
                 "r"(ptx::e4m3_to_bf16(codes.y)), "r"(ptx::e4m3_to_bf16(codes.y >> 16))
                 : "memory");
  };
#pragma unroll 1
  for (unsigned group = threadIdx.x / 32 - 1; group < kKeys / 4; group += kWideningWarps) store(group, load(group));
}

// Three warps: every unit of every tile, in the producer's order, from piece to stage.
template <int kKeys>
__device__ inline void prefill_widen(PrefillE4m3Shared<kKeys>& shared) {
  PrefillShared<kKeys>& wide = shared.wide;
  typename PrefillE4m3Shared<kKeys>::Ring ring;
  int at = 0, tiles = 0;
#pragma unroll 1
  for (int ends = 0; ends < 2;) {  // tiles without units: behind the tiles, and behind those computed again
    ptx::barrier_wait(&wide.query_full[tiles % 2], tiles / 2 % 2);
    const int units = wide.tiles[tiles % 2].units, last = at + units;
    __syncwarp();
    ptx::barrier_arrive_warp(&wide.query_empty[tiles % 2]);
    ++tiles;
    if (units == 0) ++ends;
#pragma unroll 1
    for (; at < last; ++at) {
      const int stage = stage_of<kKeys>(at);
      ptx::barrier_wait(&wide.empty[stage], parity_of<kKeys>(at) ^ 1);
#pragma unroll 1
      for (int half = 0; half < 2; ++half, ring.advance()) {
        ptx::barrier_wait(&shared.arrived[ring.stage], ring.phase);
        widen_piece<kKeys>(ptx::shared_address(shared.pieces[ring.stage]),
                           ptx::shared_address(half == 0 ? wide.keys[stage] : wide.values[stage]));
        __syncwarp();
        ptx::barrier_arrive_warp(&shared.taken[ring.stage]);
      }
      ptx::fence_async_shared();  // the tensor cores read what these threads wrote
      __syncwarp();
      ptx::barrier_arrive_warp(&wide.full[stage]);
    }
  }
}

template <int kKeys>
__device__ inline void prefill_e4m3_init(PrefillE4m3Shared<kKeys>& shared) {
  constexpr int kWarps = 4 * PrefillConfig::kConsumers, kWidening = kWideningWarps * ptx::kWarpArrivals;
  PrefillShared<kKeys>& wide = shared.wide;
  for (int slot = 0; slot < 2; ++slot) {
    ptx::barrier_init(&wide.query_full[slot], 1);
    ptx::barrier_init(&wide.query_empty[slot], kWarps * ptx::kWarpArrivals + kWidening);
  }
  ptx::barrier_init(&wide.finished, kWarps * ptx::kWarpArrivals);
  for (int stage = 0; stage < PrefillUnits<kKeys>::kStages; ++stage) {
    ptx::barrier_init(&wide.full[stage], kWidening);
    ptx::barrier_init(&wide.empty[stage], kWarps * ptx::kWarpArrivals);
  }
  for (int piece = 0; piece < PrefillE4m3Shared<kKeys>::kPieces; ++piece) {
    ptx::barrier_init(&shared.arrived[piece], 1);
    ptx::barrier_init(&shared.taken[piece], kWidening);
  }
  ptx::barrier_init_fence();
}

template <int kKeys, bool kScaled>
__global__ void __launch_bounds__(PrefillConfig::kThreads, 1)
    attention_prefill_e4m3_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillE4m3Shared<kKeys>*>(raw);
  prefill_fill(shared.wide);
  if (threadIdx.x == 0) prefill_e4m3_init(shared);
  __syncthreads();
  ptx::dependency_wait();
  const int warpgroup = uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    ptx::registers_decrease<32>();
    if (threadIdx.x == 0) {
      typename PrefillE4m3Shared<kKeys>::Ring ring;
      prefill_produce<kKeys>(shared.wide, params,
                             [&](int slot, int at) { return prefill_load_tile_e4m3(shared, params, slot, at, ring); });
    } else if (threadIdx.x >= 32) {
      prefill_widen(shared);
    }
  } else {
    ptx::registers_increase<160>();
    prefill_consume<kKeys, kScaled>(shared.wide, params, warpgroup - 1);
    ptx::dependents_launch();
  }
}

template <int kKeys, bool kScaled>
void launch_attention_prefill_e4m3_instance(const AttentionParams& params, int blocks, cudaStream_t stream) {
  static_assert(sizeof(PrefillE4m3Shared<kKeys>) <= 227 * 1024);
  rose::cuda::launch(&attention_prefill_e4m3_kernel<kKeys, kScaled>, "attention_prefill_e4m3",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(PrefillConfig::kThreads),
                      .shared_bytes = sizeof(PrefillE4m3Shared<kKeys>),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
