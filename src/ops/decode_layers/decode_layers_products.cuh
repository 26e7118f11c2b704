// Products of one row with a slot of weights, on tensor cores although there is one row: what they save is
// instructions.
//
// Dense. A warp has two features. They are the 16 rows of mma.m16n8k16, each cut into eight parts of its inputs, and
// the eight columns hold the row's matching parts: of the 16 x 8 results those count where part and column are the
// same. A lane then reads the same 16 bytes of weights and of x at every step.
//
// Experts. All warps share a slot, each has a part of the inputs, and the parts are added at the end of a phase. The 16
// rows are four features of each of four experts. Of 64 inputs (two scales) a quad of lanes has 16 each; the eight
// columns are four experts by two scales, zero where the inputs belong to the other scale. So a lane has its feature's
// sums under both scales in its own registers. Codes become bf16 as in the few-row experts kernel: times 2^-126 by
// moving bits, subnormals included; x carries 2^64; 2^62 remains at the end. All of it is exact but for the sums in
// f32.
#pragma once

#include "ops/decode_layers/decode_layers_weights.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"

namespace rose::ops::cuda {

template <class T>
struct DecodePair {
  T first, second;
};

// --- dense
// ---------------------------------------------------------------------------------------------------------------

// Two features of 32 kSteps units of 16 bytes (the last units may be past kUnits), with x of as many: even lanes get
// the sum of the first, odd ones of the second. rows(step): where this step's 32 units of both features lie.
template <int kUnits, class Rows>
__device__ inline float dense_pair(const DecodeThread& thread, const Rows& rows, const uint4* x) {
  constexpr int kSteps = (kUnits + 31) / 32;
  const int lane = thread.lane;
  float sums[2][4] = {};  // two chains
#pragma unroll 4
  for (int step = 0; step < kSteps; ++step) {
    const bool inside = kUnits % 32 == 0 || step * 32 + lane < kUnits;
    const int unit = inside ? lane : kUnits - 1 - step * 32;  // past the last: the last, times zero
    uint4 inputs = x[step * 32 + unit];
    const DecodePair<const uint4*> at = rows(step);
    const uint4 first = at.first[unit], second = at.second[unit];
    if (!inside) inputs = {0, 0, 0, 0};
    const std::uint32_t low[4] = {first.x, second.x, first.y, second.y},
                        high[4] = {first.z, second.z, first.w, second.w};
    ptx::mma_bf16(sums[0], low, inputs.x, inputs.y);
    ptx::mma_bf16(sums[1], high, inputs.z, inputs.w);
  }
  // Part g = lane / 4 meets itself in column g: lane g * 4 + g / 2, its first or second column.
  const int part = lane / 4, column = part % 2;
  const bool meets = lane % 4 == part / 2;
  const float of_first =
      meets ? (column == 0 ? sums[0][0] : sums[0][1]) + (column == 0 ? sums[1][0] : sums[1][1]) : 0.f;
  const float of_second =
      meets ? (column == 0 ? sums[0][2] : sums[0][3]) + (column == 0 ? sums[1][2] : sums[1][3]) : 0.f;
  float sum = lane % 2 == 0 ? of_first : of_second;
  sum += __shfl_xor_sync(0xffffffffu, lane % 2 == 0 ? of_second : of_first, 1);
#pragma unroll
  for (int offset = 2; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

// --- experts
// -------------------------------------------------------------------------------------------------------------

struct DecodeSums {
  static constexpr int kRows = DecodeLayersKernel::kTop * 2 * DecodeRingShape::kShareMost;
  // By row and warp. An odd pitch: neighbouring rows in different banks.
  float parts[kRows][DecodeLayersKernel::kWarps | 1];

  __device__ float total(int row) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < DecodeLayersKernel::kWarps; ++warp) sum += parts[row][warp];
    return sum;
  }
};

struct DecodeChunks {
  static constexpr int kInputs = 64;
  static constexpr int kAll = DecodeLayersKernel::kHidden / kInputs;
  static constexpr int kWarp = (kAll + DecodeLayersKernel::kWarps - 1) / DecodeLayersKernel::kWarps;
  static_assert(DecodeLayersKernel::kHidden % kInputs == 0);
  __device__ static int of(const DecodeThread& thread, int i) { return thread.warp + i * DecodeLayersKernel::kWarps; }
};

// The 16 inputs of this lane in each of its warp's chunks, as columns of B: zeros where column and lane do not meet.
struct DecodeColumns {
  std::uint32_t b[DecodeChunks::kWarp][8];

  // Column lane / 4 is expert lane / 8 under scale lane / 4 % 2; the inputs of lanes 0 and 1 of a quad have scale 0.
  __device__ static bool meets(const DecodeThread& thread) { return thread.index / 4 % 2 == thread.index % 4 / 2; }
  __device__ static int expert(const DecodeThread& thread) { return thread.lane / 8; }
  __device__ static int first_input(const DecodeThread& thread, int chunk) {
    return chunk * DecodeChunks::kInputs + thread.index % 4 * 16;
  }

  // From four experts' inputs, or the same for all of them, `pitch` units of eight apart.
  __device__ void read(const DecodeThread& thread, const uint4* inputs, int pitch) {
    if (!meets(thread)) return;
#pragma unroll
    for (int i = 0; i < DecodeChunks::kWarp; ++i) {
      if (DecodeChunks::of(thread, i) >= DecodeChunks::kAll) break;
      const uint4* from = inputs + expert(thread) * pitch + first_input(thread, DecodeChunks::of(thread, i)) / 8;
      set(i, 0, from[0]), set(i, 1, from[1]);
    }
  }

  // Eight inputs in order (bf16 pairs) as the pairs (0, 4), (1, 5), (2, 6), (3, 7) that codes come in, times 2^64.
  __device__ void set(int i, int half, const uint4& v) {
    const auto scaled = [](std::uint32_t pair) { return ptx::multiply_bf16(pair, 0x5f805f80u); };
    b[i][half * 4] = scaled(__byte_perm(v.x, v.z, 0x5410));
    b[i][half * 4 + 1] = scaled(__byte_perm(v.x, v.z, 0x7632));
    b[i][half * 4 + 2] = scaled(__byte_perm(v.y, v.w, 0x5410));
    b[i][half * 4 + 3] = scaled(__byte_perm(v.y, v.w, 0x7632));
  }
};

// One slot: four rows, from `row` on, of each expert. This warp's parts go to sums[4 row + 4 expert + 0 .. 3].
template <int kScaleRows>
__device__ inline void expert_slot(const DecodeThread& thread, const std::uint8_t* slot,
                                   const DecodeScales<kScaleRows>& scales, int row, const DecodeColumns& x,
                                   DecodeSums& sums) {
  using R = DecodeRingShape;
  const int lane = thread.lane, warp = thread.warp, group = lane / 4, quarter = lane % 4;
  // This lane's own row among the 16: lanes 0 and 1 of a quad have one of the first eight, 2 and 3 one of the others.
  const int own = group + (quarter >= 2 ? 8 : 0);
  const std::uint8_t* scale = scales[own / 4][0][row + own % 4];
  float total = 0;
#pragma unroll
  for (int i = 0; i < DecodeChunks::kWarp; ++i) {
    const int chunk = DecodeChunks::of(thread, i);
    if (chunk >= DecodeChunks::kAll) break;
    const std::uint8_t* from = slot + group * R::kExpertBytes + chunk * (DecodeChunks::kInputs / 2) + quarter * 8;
    const uint2 low = *reinterpret_cast<const uint2*>(from);
    const uint2 high = *reinterpret_cast<const uint2*>(from + 8 * R::kExpertBytes);
    const std::uint32_t both =
        *reinterpret_cast<const std::uint16_t*>(scale + chunk / 4 * (kScaleRows * R::kScaleRow) + chunk % 4 * 2);
    float c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};  // two chains of products
    std::uint32_t p[4], q[4];
    ptx::e2m1_to_bf16(low.x, p), ptx::e2m1_to_bf16(high.x, q);
    const std::uint32_t a0[4] = {p[0], q[0], p[1], q[1]}, a1[4] = {p[2], q[2], p[3], q[3]};
    ptx::mma_bf16(c, a0, x.b[i][0], x.b[i][1]);
    ptx::mma_bf16(c, a1, x.b[i][2], x.b[i][3]);
    ptx::e2m1_to_bf16(low.y, p), ptx::e2m1_to_bf16(high.y, q);
    const std::uint32_t a2[4] = {p[0], q[0], p[1], q[1]}, a3[4] = {p[2], q[2], p[3], q[3]};
    ptx::mma_bf16(d, a2, x.b[i][4], x.b[i][5]);
    ptx::mma_bf16(d, a3, x.b[i][6], x.b[i][7]);
    const float first = __uint_as_float(both << 23 & 0x7f800000u), second = __uint_as_float(both >> 8 << 23);
    total = fmaf(quarter >= 2 ? c[2] + d[2] : c[0] + d[0], first, total);
    total = fmaf(quarter >= 2 ? c[3] + d[3] : c[1] + d[1], second, total);
  }
  // Columns 2 q, 2 q + 1 belong to expert q; rows 4 e .. 4 e + 3 to expert e.
  if (quarter == own / 4) sums.parts[4 * row + own][warp] = total;
}

}  // namespace rose::ops::cuda
