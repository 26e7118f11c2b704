// One of the two products of the experts (experts.h): rows sorted by expert, FP8 activations, MXFP4 or FP8 weights.
//
//   gate_up:  a = swiglu(x . W^T + b), stored as e4m3 of 8 a    (|a| <= 56 by the clamps: 8 a never passes 448)
//   down:     y = w (a . W^T + b), stored as bf16
//
// Bound: many rows: 2 * rows * k * out * in FLOPs at the FP8 rate (measured 1386 TFLOP/s on an H200); few rows: the
// bytes of the weights of the experts that are hit.
//
// MXFP4 becomes e4m3 exactly: a group's exponent over the base of its 128 x 256 tile lies in [-8, 6], and e2m1 times
// those powers of two is an e4m3 number (checked when the weights are loaded). The base is a power of two and
// multiplies the sums of its tile as the block scale of an FP8 weight does.
//
// Mapping. Weights are the M side of the WGMMA, taken from registers; rows of x are the N side, from shared memory. A
// persistent grid walks tiles of 128 output features by the rows of one expert, in up to kParts parts of kN columns.
//   two threads     load by TMA into two rings: weights and scales, kJoin steps of 128 inputs a stage; rows of x for
//                   as many inputs, the parts that kSlotRows hold
//   2 warpgroups    64 features each: unpack a stage's weights in registers, then for each part its WGMMAs into a fresh
//                   accumulator, added to the total in f32 with both scales (FP8 WGMMA keeps too few bits to accumulate
//                   over all of `in`); a part's additions run under the next part's WGMMAs
//
// Order. Lane (g, t) = (lane / 4, lane % 4) holds, for the WGMMA of 32 inputs w, inputs 4t..4t+3 and 16+4t..16+4t+3 of
// rows g and g + 8. Since order along `in` is free as long as both sides agree, it takes one whole group of 32 codes
// (16 bytes, one scale) a row: input 32t + 8w + i of a step stands at place 32w + 4t + i of it for i < 4, and at
// 32w + 16 + 4t + i - 4 for i >= 4. x and the activations lie in memory in that order, padded with zeros to whole
// steps. Rows g and g + 8 are features 2k and 2k + 1 (or the other way round, in odd g: so that eight lanes read from
// different banks): one thread holds gate and up. k is such that the eight lanes of a column write eight neighbouring
// bytes.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/experts/experts_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/swiglu.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

template <ExpertForm kForm, class Shape>
struct ProductConfig {
  static constexpr bool kFp8 = kForm == ExpertForm::kFp8;
  static constexpr int kJoin = kFp8 ? 1 : 2;  // steps whose sums share their scales: one stage of weights
  static constexpr int kStages = Shape::kStages, kXStages = Shape::kXStages;
  static constexpr int kRows = Shape::kRows;
  static constexpr int kSlotRows = kRows < Shape::kSlotRows * 2 / kJoin ? kRows : Shape::kSlotRows * 2 / kJoin;
  static constexpr int kFeatures = 128;
  static constexpr int kRowBytes = 128;
  static constexpr int kWeightBytes = kFeatures * kRowBytes;
  static constexpr int kScaleBytes = kFp8 ? 0 : kFeatures * 8;
  static constexpr int kThreads = 384;
};

template <class C>
struct alignas(1024) ProductShared {
  std::uint8_t x[C::kXStages][C::kSlotRows * C::kJoin * 128];  // part by part, a step's rows, then the next's
  std::uint8_t weight[C::kStages][C::kWeightBytes];
  alignas(16) std::uint8_t scales[C::kStages][C::kScaleBytes + 16];
  alignas(16) float x_scales[C::kXStages][C::kSlotRows];
  float bases[C::kStages];
  std::uint32_t ones;  // 0x01010101 that the compiler does not see: as a constant it takes a register a use
  uint2 table[16];     // by shift: e4m3 bytes of the eight magnitudes
  std::uint64_t full[C::kStages], empty[C::kStages];
  std::uint64_t x_full[C::kXStages], x_scaled[C::kXStages], x_empty[C::kXStages];
};

struct ProductTile {
  int expert, position, rows, shape, column;
};

// All features of a row tile before the next row tile: the tiles of one expert read its weights from L2.
__device__ inline ProductTile product_tile(const ExpertProduct& params, unsigned index) {
  const auto columns = static_cast<unsigned>(params.out_padded) / 128;
  const int4 entry = params.tiles[index / columns];
  return {entry.x, entry.y, entry.z, entry.w, static_cast<int>(index % columns * 128)};
}

// --- loads
// ---------------------------------------------------------------------------------------------------------------

__device__ inline void copy_bulk(std::uint64_t* barrier, void* shared, const void* global, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   ptx::shared_address(shared)),
               "l"(global), "r"(bytes), "r"(ptx::shared_address(barrier))
               : "memory");
}

// A number that the compiler knows nothing about, made where it stands: what is computed from it is not moved above the
// switch over shapes, where it would occupy registers through every loop.
__device__ inline int made_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

__device__ inline unsigned grid_here() {  // gridDim.x, read where it stands
  unsigned blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks;
}

// One thread. Weights and their scales.
template <class C>
__device__ __forceinline__ void load_weights(ProductShared<C>& shared, const ExpertProduct& params, unsigned count,
                                             int steps) {
  ptx::Ring<C::kStages> ring;
  for (unsigned index = blockIdx.x; index < count; index += gridDim.x) {
    const ProductTile tile = product_tile(params, index);
    const int stages = (steps + C::kJoin - 1) / C::kJoin;
    // Offsets, because addresses would take more than the few registers of this warp.
    unsigned scales = static_cast<unsigned>(tile.expert * stages * params.out_padded + tile.column);
    const unsigned bases = static_cast<unsigned>((tile.expert * params.out_padded + tile.column) / 128 * stages);
    float base = __ldg(params.weight_bases + bases);
#pragma unroll 1
    for (int i = 0; i < stages; ++i, ring.advance()) {
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      std::uint64_t* full = &shared.full[ring.stage];
      shared.bases[ring.stage] = base;
      ptx::barrier_arrive_expect(full, C::kWeightBytes + C::kScaleBytes);
      ptx::tma_load_3d(&params.weight, full, shared.weight[ring.stage], i * 128, tile.column, tile.expert);
      if (!C::kFp8) {
        copy_bulk(full, shared.scales[ring.stage], params.weight_scales + scales * 8UL, C::kScaleBytes);
        scales += static_cast<unsigned>(params.out_padded);
      }
      base = __ldg(params.weight_bases + bases + min(i + 1, stages - 1));
    }
  }
}

// One thread. Rows of x with their scales, or activations: for every stage of weights, as many parts as a slot holds at
// a time. What can be had again is found anew: this warp has few registers.
template <ExpertStage kStage, class C>
__device__ __forceinline__ void load_rows(ProductShared<C>& shared, const ExpertProduct& params, unsigned count) {
  ptx::Ring<C::kXStages> ring;
  for (unsigned index = blockIdx.x; index < count; index += grid_here()) {
    const ProductTile tile = product_tile(params, index);
#pragma unroll 1
    for (int step = 0; step < (made_here(params.in) + 127) / 128; step += C::kJoin) {
#pragma unroll 1
      for (int done = 0; done < expert_shape_rows(tile.shape); ring.advance()) {
        const int n = made_here(tile.shape) & 255, from = tile.position + done,
                  rows = min(expert_shape_rows(made_here(tile.shape)) - done, C::kSlotRows / n * n);
        ptx::barrier_wait(&shared.x_empty[ring.stage], ring.phase ^ 1);
        std::uint64_t* full = &shared.x_full[ring.stage];
        ptx::barrier_arrive_expect(full, rows * (128 * C::kJoin + (kStage == ExpertStage::kGateUp ? 4 : 0)));
        if (kStage == ExpertStage::kGateUp) {
          copy_bulk(full, shared.x_scales[ring.stage], params.x_scales + (step / 2 * params.positions_stride + from),
                    rows * 4);
        }
#pragma unroll 1
        for (int row = 0; row < rows; row += n) {
          ptx::tma_load_3d(&params.x[n / 8 - 1], full, shared.x[ring.stage] + row * 128 * C::kJoin, 0, from + row,
                           step);
        }
        done += rows;
      }
    }
  }
}

// --- weights into registers
// ----------------------------------------------------------------------------------------------

// Which features of the tile a lane holds.
struct ProductLane {
  int thread, g, t, warp;  // warp: of both warpgroups, 0..7
  __device__ explicit ProductLane(int thread_of_block)
      : thread(thread_of_block % 32), g(thread / 4), t(thread % 4), warp(thread_of_block / 32) {}
  __device__ int within() const { return (g & 1) * 2 + (g >> 1 & 1); }
  __device__ int pair() const { return g / 4 * 32 + warp * 4 + within(); }  // features 2 pair, 2 pair + 1
  __device__ bool swapped() const { return g & 1; }
};

// Eight codes: four (low half) and four (high half) e4m3 bytes, with the opposite sign. Magnitudes by look-up; a second
// look-up in `ones` (0x01 in all bytes, in a register) yields 1 where the code is positive (0 where the sign bit is
// replicated), which times 128 is a sign bit. In assembly, because the compiler knows a longer way for the shift.
__device__ inline void unpack_eight(std::uint32_t codes, const uint2& table, std::uint32_t ones, std::uint32_t& low,
                                    std::uint32_t& high) {
  std::uint32_t upper, positive_low, positive_high;
  asm("shr.b32 %0, %1, 16;" : "=r"(upper) : "r"(codes));
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(positive_low) : "r"(ones), "r"(codes));
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(positive_high) : "r"(ones), "r"(upper));
  low = positive_low * 128u + __byte_perm(table.x, table.y, codes & 0x7777u);
  high = positive_high * 128u + __byte_perm(table.x, table.y, upper & 0x7777u);
}

// Half `half` of a stage's weights.
template <class C>
__device__ __forceinline__ void product_weights(const ProductShared<C>& shared, int stage, int half, float base,
                                                const ProductLane& lane, std::uint32_t ones, std::uint32_t (&a)[4][4]) {
  const int first = lane.pair() * 2 + lane.swapped(), second = lane.pair() * 2 + !lane.swapped();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = i == 0 ? first : second;
    const std::uint8_t* from = shared.weight[stage] + row * C::kRowBytes;
    if constexpr (C::kFp8) {
      const uint4 front = *reinterpret_cast<const uint4*>(from + ((lane.t * 2) ^ (row & 7)) * 16);
      const uint4 back = *reinterpret_cast<const uint4*>(from + ((lane.t * 2 + 1) ^ (row & 7)) * 16);
      a[0][i] = front.x, a[0][i + 2] = front.y, a[1][i] = front.z, a[1][i + 2] = front.w;
      a[2][i] = back.x, a[2][i + 2] = back.y, a[3][i] = back.z, a[3][i + 2] = back.w;
    } else {
      const uint4 codes = *reinterpret_cast<const uint4*>(from + ((half * 4 + lane.t) ^ (row & 7)) * 16);
      const int shift = shared.scales[stage][row * 8 + half * 4 + lane.t] - (__float_as_int(base) >> 23) + 8;
      const uint2 table = shared.table[max(shift, 0)];
      unpack_eight(codes.x, table, ones, a[0][i], a[0][i + 2]);
      unpack_eight(codes.y, table, ones, a[1][i], a[1][i + 2]);
      unpack_eight(codes.z, table, ones, a[2][i], a[2][i + 2]);
      unpack_eight(codes.w, table, ones, a[3][i], a[3][i + 2]);
    }
  }
}

// One warp, in gate_up: the scales of x times the weights' base, once a block and not once a warp.
template <class C>
__device__ __forceinline__ void scale_rows(ProductShared<C>& shared, const ExpertProduct& params, unsigned count) {
  ptx::Ring<C::kStages> weights;
  ptx::Ring<C::kXStages> x;
  for (unsigned index = blockIdx.x; index < count; index += gridDim.x) {
    const int shape = product_tile(params, index).shape;
#pragma unroll 1
    for (int step = 0; step < (made_here(params.in) + 127) / 128; step += C::kJoin, weights.advance()) {
      ptx::barrier_wait(&shared.full[weights.stage], weights.phase);
      const float base = shared.bases[weights.stage], scale = C::kFp8 ? base : -base;
      __syncwarp();
      ptx::barrier_arrive_warp(&shared.empty[weights.stage]);
#pragma unroll 1
      for (int done = 0; done < expert_shape_rows(shape); x.advance()) {
        const int n = made_here(shape) & 255,
                  rows = min(expert_shape_rows(made_here(shape)) - done, C::kSlotRows / n * n);
        ptx::barrier_wait(&shared.x_full[x.stage], x.phase);
#pragma unroll 1
        for (int i = threadIdx.x % 32; i < rows; i += 32) shared.x_scales[x.stage][i] *= scale;
        done += rows;
        ptx::fence_async_shared();  // the next copy writes there
        __syncwarp();
        ptx::barrier_arrive_warp(&shared.x_scaled[x.stage]);
      }
    }
  }
}

// --- products
// ------------------------------------------------------------------------------------------------------------

// total += sums * scale of the column.
template <ExpertStage kStage, int kN>
__device__ __forceinline__ void promote(float (&sums)[kN / 2], float (&total)[kN / 2], const float* x_scales,
                                        float base) {
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");  // not before the wait
#pragma unroll
  for (int c = 0; c < kN / 8; ++c) {
    float2 scale = {base, base};
    if (kStage == ExpertStage::kGateUp) scale = *reinterpret_cast<const float2*>(x_scales + c * 8);  // base in it
    total[c * 4] = fmaf(sums[c * 4], scale.x, total[c * 4]);
    total[c * 4 + 1] = fmaf(sums[c * 4 + 1], scale.y, total[c * 4 + 1]);
    total[c * 4 + 2] = fmaf(sums[c * 4 + 2], scale.x, total[c * 4 + 2]);
    total[c * 4 + 3] = fmaf(sums[c * 4 + 3], scale.y, total[c * 4 + 3]);
  }
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) asm volatile("" : "+f"(total[i]));  // not after the next WGMMAs: sums would pile up
}

template <class C>
struct ProductRings {
  ptx::Ring<C::kStages> weights;
  ptx::Ring<C::kXStages> x;
};

// The halves of a descriptor (ptx/wgmma.cuh): the high one is the same everywhere, places in shared memory are added to
// the low one. Kept apart, a WGMMA costs one addition.
constexpr std::uint32_t kDescriptorHigh = 1024 / 16 | 1u << 30;
__device__ inline std::uint32_t descriptor_low(const void* shared) {
  return ptx::shared_address(shared) / 16 | 1u << 16;
}

// Four WGMMAs: one step of x, at a descriptor's low half, for one part.
template <int kN>
__device__ __forceinline__ void multiply(float (&sums)[kN / 2], const std::uint32_t (&a)[4][4], std::uint32_t x,
                                         bool fresh) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    ptx::WgmmaE4m3<kN>::rs(sums, a[k], static_cast<std::uint64_t>(kDescriptorHigh) << 32 | (x + 2 * k),
                           !fresh || k != 0);
  }
}

// Waits for a stage of weights and for the rows of each part, multiplies, and gives all of it back as soon as it has
// been read. The weights of the second half are unpacked under the first WGMMAs; a part's sums are added under the next
// part's WGMMAs.
template <ExpertStage kStage, class C, int kParts, int kN, int kHalves>
__device__ __forceinline__ void product_join(ProductShared<C>& shared, ProductRings<C>& rings, const ProductLane& lane,
                                             std::uint32_t ones, float (&total)[kParts][kN / 2]) {
  const int stage = rings.weights.stage;
  std::uint32_t a[kHalves][4][4];
  float sums[2][kN / 2];
  constexpr int kTogether = C::kSlotRows / kN;  // parts in a slot of x
  int slots[(kParts + kTogether - 1) / kTogether], phases[(kParts + kTogether - 1) / kTogether];
  std::uint32_t low = 0;  // of the slot's first part
  const auto wait_for_x = [&](int part) {
    if (part % kTogether != 0) return;
    slots[part / kTogether] = rings.x.stage;
    phases[part / kTogether] = rings.x.phase;
    low = descriptor_low(shared.x) + static_cast<unsigned>(rings.x.stage) * (sizeof(shared.x[0]) / 16);
    ptx::barrier_wait(&shared.x_full[rings.x.stage], rings.x.phase);
    rings.x.advance();
  };
  ptx::barrier_wait(&shared.full[stage], rings.weights.phase);
  const float base = shared.bases[stage], scale = C::kFp8 ? base : -base;
  const auto finish = [&](int part) {
    const int slot = slots[part / kTogether];
    if (kStage == ExpertStage::kGateUp && part % kTogether == 0) {
      ptx::barrier_wait(&shared.x_scaled[slot], phases[part / kTogether]);
    }
    promote<kStage, kN>(sums[part % 2], total[part], &shared.x_scales[slot][part % kTogether * kN + lane.t * 2], scale);
    if (part % kTogether != kTogether - 1 && part != kParts - 1) return;
    __syncwarp();
    ptx::barrier_arrive_warp(&shared.x_empty[slot]);
  };
  const auto weights_read = [&] {
    __syncwarp();
    ptx::barrier_arrive_warp(&shared.empty[stage]);
    rings.weights.advance();
  };
  product_weights<C>(shared, stage, 0, base, lane, ones, a[0]);
  if (kHalves == 1) weights_read();
  wait_for_x(0);
  ptx::wgmma_fence();
  multiply<kN>(sums[0], a[0], low, true);
  ptx::wgmma_commit();
  if constexpr (kHalves == 2) {
    product_weights<C>(shared, stage, 1, base, lane, ones, a[1]);
    weights_read();
    ptx::wgmma_fence();
    multiply<kN>(sums[0], a[1], low + kN * 8, false);
    ptx::wgmma_commit();
  }
#pragma unroll
  for (int part = 1; part < kParts; ++part) {
    wait_for_x(part);
    ptx::wgmma_fence();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      multiply<kN>(sums[part % 2], a[half], low + (part % kTogether * C::kJoin + half) * kN * 8, half == 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    finish(part - 1);
  }
  ptx::wgmma_wait<0>();
  finish(kParts - 1);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // the WGMMAs read them until here
      asm volatile("" ::"r"(a[half][k][0]), "r"(a[half][k][1]), "r"(a[half][k][2]), "r"(a[half][k][3]));
    }
  }
}

// --- results
// -------------------------------------------------------------------------------------------------------------

// Of features `feature` and the next, as bf16.
__device__ inline std::uint32_t product_bias(const ExpertProduct& params, int expert, int feature) {
  if (params.bias == nullptr || feature >= params.out_features) return 0;
  return *reinterpret_cast<const std::uint32_t*>(params.bias + static_cast<long>(expert) * params.out_features +
                                                 feature);
}

template <int kParts, int kN>
__device__ __forceinline__ void store_activations(const ExpertProduct& params, const ProductTile& tile,
                                                  const ProductLane& lane, const float (&total)[kParts][kN / 2]) {
  const int feature = tile.column + lane.pair() * 2;
  const std::uint32_t bias = product_bias(params, tile.expert, feature);
  const float gate_bias = ptx::bf16_low(bias), up_bias = ptx::bf16_high(bias);
  // 64 activations of a step of 128: every other eight bytes. Where the step's other half has no tile, zeros go there.
  const int half = tile.column / 128 % 2;
  const bool alone = half == 0 && tile.column + 128 >= params.out_features;
  const long row_bytes = made_here((params.out_features / 2 + 127) / 128 * 128);
  std::uint8_t* out = static_cast<std::uint8_t*>(params.out) + tile.position * row_bytes + tile.column / 256 * 128 +
                      lane.warp * 16 + half * 8 + lane.g / 4 * 4 + lane.within();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int c = 0; c < kN / 8; ++c) {
      const float* sum = &total[part][c * 4];
      const int row = part * kN + c * 8 + lane.t * 2;
      const float a[2] = {ptx::swiglu((lane.swapped() ? sum[2] : sum[0]) + gate_bias,
                                      (lane.swapped() ? sum[0] : sum[2]) + up_bias, params.swiglu_limit),
                          ptx::swiglu((lane.swapped() ? sum[3] : sum[1]) + gate_bias,
                                      (lane.swapped() ? sum[1] : sum[3]) + up_bias, params.swiglu_limit)};
      const std::uint16_t both = ptx::pack_e4m3(a[0] * 8.f, a[1] * 8.f);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (row + i >= tile.rows) continue;
        out[(row + i) * row_bytes] = static_cast<std::uint8_t>(both >> (8 * i));
        if (alone) out[(row + i) * row_bytes + 8] = 0;
      }
    }
  }
}

template <int kParts, int kN>
__device__ __forceinline__ void store_weighted(const ExpertProduct& params, const ProductTile& tile,
                                               const ProductLane& lane, const float (&total)[kParts][kN / 2]) {
  const int feature = tile.column + lane.pair() * 2;
  if (feature >= params.out_features) return;
  const std::uint32_t bias = product_bias(params, tile.expert, feature);
  const long row_features = made_here(params.out_features);
  const float even_bias = ptx::bf16_low(bias), odd_bias = ptx::bf16_high(bias);
  std::uint16_t* out = static_cast<std::uint16_t*>(params.out) + tile.position * row_features + feature;
  const float* weights = params.sorted_weights + tile.position + lane.t * 2;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float* from = weights + made_here(part * kN);
    float2 part_weights[kN / 8];  // a part's at once, also those past the last row
#pragma unroll
    for (int c = 0; c < kN / 8; ++c) {
      part_weights[c] = __ldg(reinterpret_cast<const float2*>(from + c * 8));
    }
#pragma unroll
    for (int c = 0; c < kN / 8; ++c) {
      const float* sum = &total[part][c * 4];
      const int row = part * kN + c * 8 + lane.t * 2;
      const float2 weight = part_weights[c];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (row + i >= tile.rows) continue;
        const float even = fmaf(lane.swapped() ? sum[2 + i] : sum[i], 0.125f, even_bias);
        const float odd = fmaf(lane.swapped() ? sum[i] : sum[2 + i], 0.125f, odd_bias);
        const float w = i == 0 ? weight.x : weight.y;
        *reinterpret_cast<std::uint32_t*>(out + (row + i) * row_features) = ptx::pack_bf16(even * w, odd * w);
      }
    }
  }
}

// --- kernel
// --------------------------------------------------------------------------------------------------------------

// Totals of the widest shapes leave few registers: what can be had again after the loop does not live through it.
template <ExpertStage kStage, class C, int kParts, int kN>
__device__ __forceinline__ void product_run(ProductShared<C>& shared, const ExpertProduct& params, unsigned index,
                                            ProductRings<C>& rings) {
  if constexpr (kParts * kN <= C::kRows) {
    float total[kParts][kN / 2];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) total[part][i] = 0;
    }
    const std::uint32_t ones = shared.ones;
    const int steps = (params.in + 127) / 128, stages = steps / C::kJoin;
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      // Where totals fill the registers, a stage finds its lane's addresses anew.
      const ProductLane stage_lane(kParts * kN >= 224 ? made_here(threadIdx.x) : static_cast<int>(threadIdx.x));
      product_join<kStage, C, kParts, kN, C::kJoin>(shared, rings, stage_lane, ones, total);
    }
    if (C::kJoin == 2 && steps % 2 == 1)
      product_join<kStage, C, kParts, kN, 1>(shared, rings, ProductLane(made_here(threadIdx.x)), ones, total);
    const ProductTile tile = product_tile(params, static_cast<unsigned>(made_here(static_cast<int>(index))));
    const ProductLane out_lane(made_here(threadIdx.x));
    if constexpr (kStage == ExpertStage::kGateUp) {
      store_activations<kParts, kN>(params, tile, out_lane, total);
    } else {
      store_weighted<kParts, kN>(params, tile, out_lane, total);
    }
  }
}

template <ExpertStage kStage, class C>
__device__ __forceinline__ void product_consume(ProductShared<C>& shared, const ExpertProduct& params, unsigned count) {
  ProductRings<C> rings;
  for (unsigned index = blockIdx.x; index < count; index += gridDim.x) {
    switch (product_tile(params, index).shape) {  // one that holds no more than kRows
#define ROSE_X(parts, n)                                            \
  case expert_shape(parts, n):                                      \
    product_run<kStage, C, parts, n>(shared, params, index, rings); \
    break;
      ROSE_EXPERT_SHAPES(ROSE_X)
#undef ROSE_X
    }
  }
}

// Codes 0..7: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
__device__ inline float e2m1_magnitude(int code) {
  return code < 2 ? 0.5f * code : (1.f + 0.5f * (code & 1)) * (1 << (code / 2 - 1));
}

template <ExpertStage kStage, class C>
__device__ inline void product_setup(ProductShared<C>& shared) {
  for (int i = threadIdx.x; i < 16 * 4; i += C::kThreads) {  // two codes at shift i / 4 - 8: exact in e4m3
    const float power = __int_as_float((i / 4 - 8 + 127) << 23);
    reinterpret_cast<std::uint16_t*>(shared.table)[i] =
        ptx::pack_e4m3(e2m1_magnitude(i % 4 * 2) * power, e2m1_magnitude(i % 4 * 2 + 1) * power);
  }
  if (threadIdx.x != 0) return;
  shared.ones = 0x01010101u;
  for (int stage = 0; stage < C::kStages; ++stage) {
    ptx::barrier_init(&shared.full[stage], 1);
    ptx::barrier_init(&shared.empty[stage], (kStage == ExpertStage::kGateUp ? 9 : 8) * ptx::kWarpArrivals);
  }
  for (int stage = 0; stage < C::kXStages; ++stage) {
    ptx::barrier_init(&shared.x_full[stage], 1);
    ptx::barrier_init(&shared.x_scaled[stage], ptx::kWarpArrivals);
    ptx::barrier_init(&shared.x_empty[stage], 8 * ptx::kWarpArrivals);
  }
  ptx::barrier_init_fence();
}

// Dependencies. Quantizing lets gate_up start only after its own wait for the sort, so both products see the tile list
// from their first instruction; their rows alone wait for the kernel before, with the ring of weights already filling.
template <ExpertStage kStage, ExpertForm kForm, class Shape>
__global__ void __launch_bounds__(ProductConfig<kForm, Shape>::kThreads, Shape::kBlocks)
    expert_product_kernel(const __grid_constant__ ExpertProduct params) {
  using C = ProductConfig<kForm, Shape>;
  extern __shared__ __align__(1024) std::uint8_t memory[];  // aligned by its declaration: an address of known space
  auto& shared = *reinterpret_cast<ProductShared<C>*>(memory);
  product_setup<kStage, C>(shared);
  __syncthreads();
  ptx::dependents_launch();
  const unsigned count =
      static_cast<unsigned>(*params.tile_count) * (static_cast<unsigned>(params.out_padded) / C::kFeatures);
  const int steps = (params.in + 127) / 128;
  if (threadIdx.x >= 256) {
    ptx::registers_decrease<Shape::kLoadRegisters>();
    if (threadIdx.x == 256) {
      load_weights<C>(shared, params, count, steps);
    } else if (threadIdx.x == 288) {
      ptx::dependency_wait();
      load_rows<kStage, C>(shared, params, count);
    } else if (kStage == ExpertStage::kGateUp && threadIdx.x / 32 == 10) {
      scale_rows<C>(shared, params, count);
    }
  } else {
    ptx::registers_increase<Shape::kRegisters>();
    product_consume<kStage, C>(shared, params, count);
  }
}

template <ExpertStage kStage, ExpertForm kForm, class Shape>
void launch_expert_product(const ExpertProduct& params, int multiprocessors, cudaStream_t stream) {
  using C = ProductConfig<kForm, Shape>;
  constexpr std::size_t kBytes = sizeof(ProductShared<C>);
  static_assert(kBytes <= (Shape::kBlocks == 1 ? 227 : 113) * 1024);
  rose::cuda::check_status(cudaFuncSetAttribute(expert_product_kernel<kStage, kForm, Shape>,
                                                cudaFuncAttributePreferredSharedMemoryCarveout, 100),
                           "experts product");
  rose::cuda::launch(&expert_product_kernel<kStage, kForm, Shape>,
                     kStage == ExpertStage::kGateUp ? "experts gate_up" : "experts down",
                     {.grid = dim3(static_cast<unsigned>(multiprocessors * Shape::kBlocks)),
                      .block = dim3(C::kThreads),
                      .shared_bytes = kBytes,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
