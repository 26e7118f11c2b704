// One of the two products of the experts (experts.h) for many rows: rows sorted by expert, FP8 activations, MXFP4
// weights as stored.
//
//   gate_up:  a = swiglu(x . W^T + b), stored as e4m3 of 8 a    (|a| <= 56 by the clamps: 8 a never passes 448)
//   down:     y = w (a . W^T + b), stored as bf16
//
// Bound: 2 * rows * k * out * in FLOPs at the FP8 rate (measured 1386 TFLOP/s on an H200).
//
// MXFP4 becomes e4m3 exactly: a group's exponent over the base of its 128 x 128 tile lies in [-8, 6], and e2m1 times
// those powers of two is an e4m3 number (checked when the weights are loaded). The base is a power of two and
// multiplies the product of each 128-wide step as the block scale of an FP8 weight would.
//
// Mapping: a persistent grid walks tiles of 128 rows of one expert by 160 output features. In a block:
//   warpgroup 0   one thread loads x (e4m3), packed weights and their shifts by TMA, 128 of `in` a step
//   warpgroup 1   unpacks: each thread turns 16 bytes (one group of 32) into 32 e4m3 bytes by table look-up (PRMT)
//   warpgroups 2, 3   64 rows each: four WGMMAs of a step into a fresh accumulator, then one FMA a sum with both
//   scales:
//                     FP8 WGMMA keeps too few bits to accumulate over all of `in`
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

template <ExpertStage kStage>
struct alignas(1024) ExpertShared {
  using C = ExpertConfig<kStage>;
  std::uint8_t x[C::kXStages][C::kXBytes];
  std::uint8_t weight[C::kWeightStages][C::kWeightBytes];
  std::uint8_t packed[C::kPackedStages][C::kPackedBytes];
  alignas(16) std::uint8_t shifts[C::kPackedStages][C::kShiftBytes];
  alignas(16) float x_scales[C::kXStages][C::kM];
  float bases[C::kWeightStages][C::kBases];
  alignas(16) std::uint8_t store[C::kConsumers][64 * C::kStoreRow];
  uint2 table[16];  // by shift: e4m3 bytes of the eight magnitudes
  std::uint64_t x_full[C::kXStages], x_empty[C::kXStages];
  std::uint64_t packed_full[C::kPackedStages], packed_empty[C::kPackedStages];
  std::uint64_t weight_full[C::kWeightStages], weight_empty[C::kWeightStages];
};

struct ExpertTile {
  int expert, position, rows, column;
};

// Features outer, row tiles of one expert inner: a weight tile is read from memory once and then found in L2.
template <ExpertStage kStage>
__device__ inline ExpertTile expert_tile(const ExpertProduct& params, int index, int column_tiles) {
  const int4 entry = params.tiles[index / column_tiles];
  return {entry.x, entry.y, entry.z, index % column_tiles * ExpertConfig<kStage>::kN};
}

// --- loads
// ---------------------------------------------------------------------------------------------------------------

__device__ inline void copy_bulk(std::uint64_t* barrier, void* shared, const void* global, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   ptx::shared_address(shared)),
               "l"(global), "r"(bytes), "r"(ptx::shared_address(barrier))
               : "memory");
}

template <ExpertStage kStage>
__device__ inline void expert_load(ExpertShared<kStage>& shared, const ExpertProduct& params, int tiles,
                                   int column_tiles, int steps) {
  using C = ExpertConfig<kStage>;
  ptx::Ring<C::kXStages> x;
  ptx::Ring<C::kPackedStages> packed;
  for (int index = blockIdx.x; index < tiles * column_tiles; index += gridDim.x) {
    const ExpertTile tile = expert_tile<kStage>(params, index, column_tiles);
    for (int step = 0; step < steps; ++step, x.advance(), packed.advance()) {
      ptx::barrier_wait(&shared.packed_empty[packed.stage], packed.phase ^ 1);
      std::uint64_t* full = &shared.packed_full[packed.stage];
      ptx::barrier_arrive_expect(full, C::kPackedBytes + C::kShiftBytes);
      ptx::tma_load_3d(&params.weight, full, shared.packed[packed.stage], step * C::kK / 2, tile.column, tile.expert,
                       ptx::kEvictLast);
      copy_bulk(full, shared.shifts[packed.stage],
                params.weight_scales +
                    ((static_cast<long>(tile.expert) * steps + step) * params.out_padded + tile.column) * 4,
                C::kShiftBytes);
      ptx::barrier_wait(&shared.x_empty[x.stage], x.phase ^ 1);
      full = &shared.x_full[x.stage];
      ptx::barrier_arrive_expect(full, C::kXBytes + (params.x_scales != nullptr ? C::kM * 4 : 0));
      ptx::tma_load_2d(&params.x, full, shared.x[x.stage], step * C::kK, tile.position);
      if (params.x_scales != nullptr) {
        copy_bulk(full, shared.x_scales[x.stage],
                  params.x_scales + static_cast<long>(step) * params.positions_stride + tile.position, C::kM * 4);
      }
    }
  }
}

// --- unpacking
// -----------------------------------------------------------------------------------------------------------

// Four 4-bit codes (low half of `codes`) as e4m3 bytes: magnitudes by look-up; the sign bit of each nibble, widened by
// a look-up in a table of 0x80 (0x80 or, replicated, 0xff), ends in bit 7.
__device__ inline std::uint32_t unpack_four(std::uint32_t codes, const uint2& table) {
  const std::uint32_t magnitudes = __byte_perm(table.x, table.y, codes & 0x7777u);
  std::uint32_t signs;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(signs) : "r"(0x80808080u), "r"(codes));
  return magnitudes | ((signs << 7) & 0x80808080u);
}

template <ExpertStage kStage>
__device__ inline void expert_unpack(ExpertShared<kStage>& shared, const ExpertProduct& params, int tiles,
                                     int column_tiles, int steps) {
  using C = ExpertConfig<kStage>;
  const int thread = threadIdx.x % 128;
  const int blocks_out = (params.out_padded + 127) / 128;
  ptx::Ring<C::kPackedStages> packed;
  ptx::Ring<C::kWeightStages> weight;
  for (int index = blockIdx.x; index < tiles * column_tiles; index += gridDim.x) {
    const ExpertTile tile = expert_tile<kStage>(params, index, column_tiles);
    const float* bases = params.weight_bases + static_cast<long>(tile.expert) * blocks_out * params.bases_stride;
    for (int step = 0; step < steps; ++step, packed.advance(), weight.advance()) {
      ptx::barrier_wait(&shared.packed_full[packed.stage], packed.phase);
      ptx::barrier_wait(&shared.weight_empty[weight.stage], weight.phase ^ 1);
      float base[C::kBases];
#pragma unroll
      for (int i = 0; i < C::kBases; ++i) {
        base[i] = bases[static_cast<long>(min(tile.column / 128 + i, blocks_out - 1)) * params.bases_stride + step];
        if (thread == 0) shared.bases[weight.stage][i] = base[i];
      }
      const std::uint8_t* from = shared.packed[packed.stage];
      std::uint8_t* to = shared.weight[weight.stage];
#pragma unroll
      for (int i = 0; i < C::kN * 4 / 128; ++i) {  // a group of 32: row, quarter of the step
        const int group = i * 128 + thread, row = group / 4, quarter = group % 4;
        const int tile_row = tile.column % 128 + row;
        const float b = tile_row < 128 ? base[0] : tile_row < 256 ? base[1] : base[2];
        const int shift = shared.shifts[packed.stage][group] - (__float_as_int(b) >> 23) + 8;
        const uint2 table = shared.table[min(max(shift, 0), 14)];
        const uint4 codes = *reinterpret_cast<const uint4*>(from + group * 16);
        const uint4 first = {unpack_four(codes.x, table), unpack_four(codes.x >> 16, table),
                             unpack_four(codes.y, table), unpack_four(codes.y >> 16, table)};
        const uint4 second = {unpack_four(codes.z, table), unpack_four(codes.z >> 16, table),
                              unpack_four(codes.w, table), unpack_four(codes.w >> 16, table)};
        *reinterpret_cast<uint4*>(to + row * 128 + ((quarter * 2) ^ (row & 7)) * 16) = first;
        *reinterpret_cast<uint4*>(to + row * 128 + ((quarter * 2 + 1) ^ (row & 7)) * 16) = second;
      }
      ptx::fence_async_shared();
      ptx::barrier_arrive(&shared.packed_empty[packed.stage]);
      ptx::barrier_arrive(&shared.weight_full[weight.stage]);
    }
  }
}

// --- products
// ------------------------------------------------------------------------------------------------------------

// total += step_sums * (row scale) * (weight base), column group by column group.
template <ExpertStage kStage>
__device__ inline void promote(const float (&sums)[ExpertConfig<kStage>::kN / 2],
                               float (&total)[ExpertConfig<kStage>::kN / 2], const float (&row_scale)[2],
                               const float* bases, int offset) {
  using C = ExpertConfig<kStage>;
  const float base[C::kBases] = {bases[0], bases[1], bases[2]};
#pragma unroll
  for (int part = 0; part < C::kN / 32; ++part) {  // 32 columns never straddle two weight tiles
    const int column = offset + part * 32;
    const float b = column < 128 ? base[0] : column < 256 ? base[1] : base[2];
    const float scale[2] = {b * row_scale[0], b * row_scale[1]};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      total[part * 16 + i] = fmaf(sums[part * 16 + i], scale[i % 4 / 2], total[part * 16 + i]);
    }
  }
}

__device__ inline float swiglu(float gate, float up, float limit) {
  gate = fminf(gate, limit);
  up = fminf(fmaxf(up, -limit), limit);
  const float sigmoid = __fdividef(1.f, 1.f + ptx::exp2_fast(-1.702f * 1.44269504f * gate));
  return gate * sigmoid * (up + 1.f);
}

// Both epilogues write the warp's 16 rows into its part of the store buffer and then copy valid rows out, 16 bytes a
// lane.
template <ExpertStage kStage>
__device__ inline void copy_rows_out(const std::uint8_t* rows, std::uint8_t* out, long row_bytes, int first_row,
                                     int valid, int bytes) {
  using C = ExpertConfig<kStage>;
  __syncwarp();
  const int units = bytes / 16, lane = threadIdx.x % 32;
  for (int i = lane; i < 16 * units; i += 32) {
    const int row = i / units, unit = i % units;
    if (first_row + row >= valid) continue;
    *reinterpret_cast<uint4*>(out + (first_row + row) * row_bytes + unit * 16) =
        *reinterpret_cast<const uint4*>(rows + row * C::kStoreRow + unit * 16);
  }
  __syncwarp();
}

template <ExpertStage kStage>
__device__ inline void expert_store(ExpertShared<kStage>& shared, const ExpertProduct& params, const ExpertTile& tile,
                                    int consumer, const float (&total)[ExpertConfig<kStage>::kN / 2]) {
  using C = ExpertConfig<kStage>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  std::uint8_t* rows = shared.store[consumer] + warp * 16 * C::kStoreRow;
  const std::uint16_t* bias = params.bias + static_cast<long>(tile.expert) * params.out_features + tile.column;
  const int first_row = consumer * 64 + warp * 16;
  float weight[2] = {1, 1};
  if constexpr (kStage == ExpertStage::kDown) {
    weight[0] = params.sorted_weights[tile.position + first_row + lane / 4];
    weight[1] = params.sorted_weights[tile.position + first_row + lane / 4 + 8];
  }
#pragma unroll
  for (int c = 0; c < C::kN / 8; ++c) {
    const int column = c * 8 + lane % 4 * 2;
    const bool inside = tile.column + column < params.out_features;
    const std::uint32_t pair = inside ? *reinterpret_cast<const std::uint32_t*>(bias + column) : 0;
    const float low = ptx::bf16_low(pair), high = ptx::bf16_high(pair);
    const float* sum = &total[c * 4];
    if constexpr (kStage == ExpertStage::kGateUp) {
      const float a0 = swiglu(sum[0] + low, sum[1] + high, params.swiglu_limit) * 8.f;
      const float a1 = swiglu(sum[2] + low, sum[3] + high, params.swiglu_limit) * 8.f;
      const std::uint16_t both = ptx::pack_e4m3(a0, a1);
      rows[lane / 4 * C::kStoreRow + c * 4 + lane % 4] = static_cast<std::uint8_t>(both);
      rows[(lane / 4 + 8) * C::kStoreRow + c * 4 + lane % 4] = static_cast<std::uint8_t>(both >> 8);
    } else {
      auto* to = reinterpret_cast<std::uint32_t*>(rows + lane / 4 * C::kStoreRow + c * 16 + lane % 4 * 4);
      to[0] = ptx::pack_bf16((sum[0] * 0.125f + low) * weight[0], (sum[1] * 0.125f + high) * weight[0]);
      to[8 * C::kStoreRow / 4] =
          ptx::pack_bf16((sum[2] * 0.125f + low) * weight[1], (sum[3] * 0.125f + high) * weight[1]);
    }
  }
  const int columns = min(C::kN, params.out_features - tile.column);
  if constexpr (kStage == ExpertStage::kGateUp) {
    const long row_bytes = params.out_features / 2;
    std::uint8_t* out = static_cast<std::uint8_t*>(params.out) + tile.position * row_bytes + tile.column / 2;
    copy_rows_out<kStage>(rows, out, row_bytes, first_row, tile.rows, columns / 2);
  } else {
    const long row_bytes = params.out_features * 2L;
    std::uint8_t* out = static_cast<std::uint8_t*>(params.out) + tile.position * row_bytes + tile.column * 2;
    copy_rows_out<kStage>(rows, out, row_bytes, first_row, tile.rows, columns * 2);
  }
}

template <ExpertStage kStage>
__device__ inline void expert_consume(ExpertShared<kStage>& shared, const ExpertProduct& params, int consumer,
                                      int tiles, int column_tiles, int steps) {
  using C = ExpertConfig<kStage>;
  const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + consumer * 64;
  ptx::Ring<C::kXStages> x;
  ptx::Ring<C::kWeightStages> weight;
  float sums[C::kN / 2], total[C::kN / 2];
  for (int index = blockIdx.x; index < tiles * column_tiles; index += gridDim.x) {
    const ExpertTile tile = expert_tile<kStage>(params, index, column_tiles);
    const bool works = consumer * 64 < tile.rows;  // the second half of a short tile has nothing to multiply
#pragma unroll
    for (int i = 0; i < C::kN / 2; ++i) total[i] = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, x.advance(), weight.advance()) {
      ptx::barrier_wait(&shared.x_full[x.stage], x.phase);
      ptx::barrier_wait(&shared.weight_full[weight.stage], weight.phase);
      float row_scale[2] = {1, 1};
      if (works) {
        if (kStage == ExpertStage::kGateUp) {
          row_scale[0] = shared.x_scales[x.stage][row];
          row_scale[1] = shared.x_scales[x.stage][row + 8];
        }
        const std::uint64_t a = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[x.stage]) +
                                                           static_cast<std::uint32_t>(consumer * 64 * C::kK));
        const std::uint64_t b = ptx::swizzle128_descriptor(ptx::shared_address(shared.weight[weight.stage]));
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < C::kK / 32; ++k) ptx::WgmmaE4m3<C::kN>::ss(sums, a + 2 * k, b + 2 * k, k != 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        promote<kStage>(sums, total, row_scale, shared.bases[weight.stage], tile.column % 128);
      }
      ptx::barrier_arrive(&shared.x_empty[x.stage]);
      ptx::barrier_arrive(&shared.weight_empty[weight.stage]);
    }
    if (works) expert_store<kStage>(shared, params, tile, consumer, total);
  }
}

// --- kernel
// --------------------------------------------------------------------------------------------------------------

// Codes 0..7: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
__device__ inline float e2m1_magnitude(int code) {
  return code < 2 ? 0.5f * code : (1.f + 0.5f * (code & 1)) * (1 << (code / 2 - 1));
}

template <ExpertStage kStage>
__device__ inline void expert_setup(ExpertShared<kStage>& shared) {
  using C = ExpertConfig<kStage>;
  for (int i = threadIdx.x; i < 15 * 4; i += C::kThreads) {  // two codes at shift i / 4 - 8: exact in e4m3
    const float power = __int_as_float((i / 4 - 8 + 127) << 23);
    reinterpret_cast<std::uint16_t*>(shared.table)[i] =
        ptx::pack_e4m3(e2m1_magnitude(i % 4 * 2) * power, e2m1_magnitude(i % 4 * 2 + 1) * power);
  }
  if (threadIdx.x != 0) return;
  for (int stage = 0; stage < C::kXStages; ++stage) {
    ptx::barrier_init(&shared.x_full[stage], 1);
    ptx::barrier_init(&shared.x_empty[stage], 128 * C::kConsumers);
  }
  for (int stage = 0; stage < C::kPackedStages; ++stage) {
    ptx::barrier_init(&shared.packed_full[stage], 1);
    ptx::barrier_init(&shared.packed_empty[stage], 128);
  }
  for (int stage = 0; stage < C::kWeightStages; ++stage) {
    ptx::barrier_init(&shared.weight_full[stage], 128);
    ptx::barrier_init(&shared.weight_empty[stage], 128 * C::kConsumers);
  }
  ptx::barrier_init_fence();
}

template <ExpertStage kStage>
__global__ void __launch_bounds__(ExpertConfig<kStage>::kThreads, 1)
    expert_product_kernel(const __grid_constant__ ExpertProduct params) {
  using C = ExpertConfig<kStage>;
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<ExpertShared<kStage>*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  expert_setup(shared);
  __syncthreads();
  ptx::dependency_wait();
  const int tiles = *params.tile_count;
  const int column_tiles = (params.out_features + C::kN - 1) / C::kN;
  const int steps = (params.in + C::kK - 1) / C::kK;
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    ptx::registers_decrease<24>();
    if (threadIdx.x == 0) expert_load(shared, params, tiles, column_tiles, steps);
  } else if (warpgroup == 1) {
    ptx::registers_decrease<72>();
    expert_unpack(shared, params, tiles, column_tiles, steps);
  } else {
    ptx::registers_increase<208>();
    expert_consume(shared, params, warpgroup - 2, tiles, column_tiles, steps);
    ptx::dependents_launch();
  }
}

template <ExpertStage kStage>
void launch_expert_product(const ExpertProduct& params, int blocks, cudaStream_t stream) {
  static_assert(sizeof(ExpertShared<kStage>) <= 226 * 1024);
  rose::cuda::launch(&expert_product_kernel<kStage>,
                     kStage == ExpertStage::kGateUp ? "experts gate_up" : "experts down",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(ExpertConfig<kStage>::kThreads),
                      .shared_bytes = sizeof(ExpertShared<kStage>) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
