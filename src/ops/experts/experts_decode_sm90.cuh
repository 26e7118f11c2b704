// One of the two products of the experts (experts.h) for few rows: MXFP4 weights as stored, bf16 activations.
//
//   gate_up:  a = swiglu(x . W^T + b), bf16 [entries, out / 2]
//   down:     y = w (a . W^T + b), f32 [entries, out]
//
// Bound: bytes of the weights of the experts that are hit (gate_up 8.8 MB, down 4.4 MB an expert at 2880), read once.
//
// Mapping. Every block sorts the (at most 512) entries by expert in shared memory; up to 8 * kChunks entries of one
// expert make a batch. An item is a batch and 16 output features; each block walks a contiguous range of items, so it
// seldom changes its expert. In a block:
//   producer warp   16 bulk copies (a row each) and a tensor copy of the scales into a ring of stages, far ahead
//   consumer warps  split `in`: warp w takes the groups of 32 w, w + kWarps, ...; its activations for all of them stay
//                   in registers for as long as the batch lasts. Weights are the M side of mma.m16n8k16.
//   epilogue warp   adds the warps' sums in order, then bias and activation or routing weight
//
// Decoding. A 4-bit code s ee m put into bit 15 and bits 8..6 of a bf16 is the number times 2^-126, subnormals
// included, so two masks and a multiplication turn two codes into a pair, without look-up. The activations carry 2^64
// to keep products far from f32's ends (they must stay below 2^64: normed rows and swiglu's |a| <= 56 do). Both
// instructions of a group share one scale a row, a power of two that multiplies their f32 sums; what remains is 2^62
// at the end. All of it is exact: rounding is that of f32 sums. Scale 0 (2^-127) counts as zero.
//
// Order inside a group is free as long as both sides agree: lane c of four takes elements 8c..8c+7, in pairs
// (0, 4), (1, 5), (2, 6), (3, 7). Feature 2j of the tile is row j of the instruction, feature 2j + 1 row j + 8: one
// thread holds gate and up. Stage rows have an odd number of 16-byte units: eight rows fall into different banks.
#pragma once

#include <climits>

#include "device/cuda/launch.cuh"
#include "ops/experts/experts_decode_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/swiglu.cuh"
#include "ops/ptx/tma.cuh"

namespace rose::ops::cuda {

enum class DecodeStage { kGateUp, kDown };

// Up to 8 rows: two blocks share a multiprocessor, so that blocks of `down` fill their rings while gate_up drains.
struct DecodeNarrow {
  static constexpr int kRows = 8;
  static constexpr int kChunks = 1, kWarps = 8, kGroups = 12, kStages = 4, kBlocks = 2;
};
struct DecodeWide {
  static constexpr int kRows = ExpertDecodeLimits::kRows;
  static constexpr int kChunks = 2, kWarps = 14, kGroups = 7, kStages = 7, kBlocks = 1;
};

template <class C>
struct alignas(128) DecodeShared {
  static constexpr int kFeatures = ExpertDecodeLimits::kTileFeatures;
  static constexpr int kRowBytes = (ExpertDecodeLimits::kGroups | 1) * 16;
  // Weights, then scales: 16 features x 8 groups for every 256 of `in`. Both start where TMA may write.
  static constexpr int kScaleBytes = (ExpertDecodeLimits::kGroups + 7) / 8 * kFeatures * 8;
  static constexpr int kStageBytes = (kFeatures * kRowBytes + kScaleBytes + 127) / 128 * 128;
  static constexpr int kEntries = C::kRows * ExpertDecodeLimits::kTop;
  static constexpr int kThreads = (C::kWarps + 2) * 32;
  static_assert(C::kWarps * C::kGroups >= ExpertDecodeLimits::kGroups);
  static_assert(kEntries <= kThreads);

  std::uint8_t stages[C::kStages][kStageBytes];
  float4 sums[2][C::kChunks][C::kWarps][32];
  int4 batches[kEntries];  // expert (of those held), first place in `order`, entries, -
  int keys[kEntries];      // by entry: expert, INT_MAX: held elsewhere
  int order[kEntries];     // entries by expert
  int leads[kEntries];     // by place: 1 where a batch starts
  std::uint64_t full[C::kStages], empty[C::kStages];
  std::uint64_t sums_full[2], sums_empty[2];
};

struct DecodeRange {
  int begin, end, tiles;
};

// --- sorting
// -------------------------------------------------------------------------------------------------------------

// The whole block; returns the number of batches. Places follow from counting alone: no order of arrival enters.
template <class C>
__device__ inline int decode_sort(DecodeShared<C>& shared, const ExpertDecode& params) {
  const int entries = params.rows * params.k, i = threadIdx.x;
  int key = INT_MAX;
  if (i < entries) {
    const int expert = params.experts[i] - params.first_expert;
    if (expert >= 0 && expert < params.experts_held) key = expert;
    shared.keys[i] = key;
  }
  __syncthreads();
  int smaller = 0, rank = 0, same = 0;
  if (i < entries) {
    for (int j = 0; j < entries; ++j) {
      const int other = shared.keys[j];
      smaller += other < key;
      same += other == key;
      rank += other == key && j < i;
    }
  }
  constexpr int kBatch = 8 * C::kChunks;
  const int place = smaller + rank;
  const bool lead = i < entries && key != INT_MAX && rank % kBatch == 0;
  if (i < entries) {
    shared.order[place] = i;
    shared.leads[place] = lead ? 1 : 0;
  }
  const int batches = __syncthreads_count(lead);
  if (lead) {
    int index = 0;
    for (int j = 0; j < place; ++j) index += shared.leads[j];
    shared.batches[index] = {key, place, min(kBatch, same - rank), 0};
  }
  __syncthreads();
  return batches;
}

// --- loads
// ---------------------------------------------------------------------------------------------------------------

__device__ inline void decode_copy(std::uint64_t* barrier, void* shared, const void* global, int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(ptx::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(ptx::shared_address(barrier)), "l"(ptx::kEvictFirst)
      : "memory");
}

template <class C>
__device__ inline void decode_load(DecodeShared<C>& shared, const ExpertDecode& params, const DecodeRange& range) {
  using S = DecodeShared<C>;
  const int lane = threadIdx.x % 32, groups = params.in / 32, row_bytes = (groups | 1) * 16;
  // Even features first: row j of the stage is feature 2j, row 8 + j is feature 2j + 1.
  const int row = lane % 2 * 8 + lane / 2;
  ptx::Ring<C::kStages> ring;
  for (int item = range.begin; item < range.end; ++item, ring.advance()) {
    const int expert = shared.batches[item / range.tiles].x;
    const int column = item % range.tiles * S::kFeatures;
    const long feature = static_cast<long>(expert) * params.out_features + column;
    ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
    std::uint64_t* full = &shared.full[ring.stage];
    if (lane == 0) ptx::barrier_arrive_expect(full, S::kFeatures * (groups * 16 + (groups + 7) / 8 * 8));
    __syncwarp();
    std::uint8_t* to = shared.stages[ring.stage];
    if (lane < S::kFeatures) {
      decode_copy(full, to + row * row_bytes, params.payload + (feature + lane) * groups * 16, groups * 16);
    } else if (lane == S::kFeatures) {
      ptx::tma_load_3d(&params.scales, full, to + S::kFeatures * row_bytes, column * 8, 0, expert, ptx::kEvictFirst);
    }
  }
}

// --- products
// ------------------------------------------------------------------------------------------------------------

// This warp's groups of the batch's rows, times 2^64 and in the order of e2m1_to_bf16; zeros past the last row.
template <DecodeStage kStage, class C>
__device__ inline void decode_read_x(DecodeShared<C>& shared, const ExpertDecode& params, const int4& batch,
                                     std::uint32_t (&x)[C::kGroups][C::kChunks][4]) {
  constexpr std::uint32_t kTwoTo64 = 0x5f805f80u;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, groups = params.in / 32;
#pragma unroll
  for (int chunk = 0; chunk < C::kChunks; ++chunk) {
    const int slot = chunk * 8 + lane / 4;
    const int entry = slot < batch.z ? shared.order[batch.y + slot] : -1;
    const int row = kStage == DecodeStage::kGateUp ? entry / params.k : entry;
    const std::uint16_t* from = params.x + static_cast<long>(row) * params.in + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      const int group = warp + i * C::kWarps;
      uint4 v = {0, 0, 0, 0};
      if (entry >= 0 && group < groups) v = *reinterpret_cast<const uint4*>(from + group * 32);
      x[i][chunk][0] = ptx::multiply_bf16(__byte_perm(v.x, v.z, 0x5410), kTwoTo64);
      x[i][chunk][1] = ptx::multiply_bf16(__byte_perm(v.x, v.z, 0x7632), kTwoTo64);
      x[i][chunk][2] = ptx::multiply_bf16(__byte_perm(v.y, v.w, 0x5410), kTwoTo64);
      x[i][chunk][3] = ptx::multiply_bf16(__byte_perm(v.y, v.w, 0x7632), kTwoTo64);
    }
  }
}

// One group of 32: 16 features by 8 rows a chunk.
template <class C>
__device__ inline void decode_group(const std::uint8_t* low, const std::uint8_t* high, const std::uint8_t* scale_low,
                                    const std::uint8_t* scale_high, const std::uint32_t (&x)[C::kChunks][4], int chunks,
                                    float (&sums)[C::kChunks][4]) {
  std::uint32_t even[4], odd[4];
  ptx::e2m1_to_bf16(*reinterpret_cast<const std::uint32_t*>(low), even);
  ptx::e2m1_to_bf16(*reinterpret_cast<const std::uint32_t*>(high), odd);
  const float even_scale = __uint_as_float(static_cast<std::uint32_t>(*scale_low) << 23);
  const float odd_scale = __uint_as_float(static_cast<std::uint32_t>(*scale_high) << 23);
  const std::uint32_t first[4] = {even[0], odd[0], even[1], odd[1]}, second[4] = {even[2], odd[2], even[3], odd[3]};
#pragma unroll
  for (int chunk = 0; chunk < C::kChunks; ++chunk) {
    if (chunk > 0 && chunk >= chunks) break;
    float part[4] = {0, 0, 0, 0};
    ptx::mma_bf16(part, first, x[chunk][0], x[chunk][1]);
    ptx::mma_bf16(part, second, x[chunk][2], x[chunk][3]);
    sums[chunk][0] = fmaf(part[0], even_scale, sums[chunk][0]);
    sums[chunk][1] = fmaf(part[1], even_scale, sums[chunk][1]);
    sums[chunk][2] = fmaf(part[2], odd_scale, sums[chunk][2]);
    sums[chunk][3] = fmaf(part[3], odd_scale, sums[chunk][3]);
  }
}

template <DecodeStage kStage, class C>
__device__ inline void decode_consume(DecodeShared<C>& shared, const ExpertDecode& params, const DecodeRange& range) {
  using S = DecodeShared<C>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int groups = params.in / 32, row_bytes = (groups | 1) * 16;
  const int mine = (groups - warp + C::kWarps - 1) / C::kWarps;  // <= 0: none
  const int low = lane / 4 * row_bytes + warp * 16 + lane % 4 * 4;
  const int scale = S::kFeatures * row_bytes + lane / 4 * 16;  // of group G: 128 (G / 8) + G % 8 further
  std::uint32_t x[C::kGroups][C::kChunks][4];
  int read = -1, chunks = 1;  // batch that x holds
  ptx::Ring<C::kStages> ring;
  ptx::Ring<2> out;
  for (int item = range.begin; item < range.end; ++item, ring.advance(), out.advance()) {
    const int index = item / range.tiles;
    if (index != read) {
      const int4 batch = shared.batches[index];
      decode_read_x<kStage, C>(shared, params, batch, x);
      chunks = (batch.z + 7) / 8;
      read = index;
    }
    float sums[C::kChunks][4] = {};
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint8_t* stage = shared.stages[ring.stage];
    const auto step = [&](int i) {
      const int group = warp + i * C::kWarps;
      const std::uint8_t *codes = stage + low + i * C::kWarps * 16,
                         *scales = stage + scale + group / 8 * (S::kFeatures * 8) + group % 8;
      decode_group<C>(codes, codes + 8 * row_bytes, scales, scales + 8, x[i], chunks, sums);
    };
    if (mine >= C::kGroups - 1) {  // no branch between groups: their loads and products overlap
#pragma unroll
      for (int i = 0; i < C::kGroups - 1; ++i) step(i);
      if (mine >= C::kGroups) step(C::kGroups - 1);
    } else {
#pragma unroll
      for (int i = 0; i < C::kGroups - 1; ++i) {
        if (i < mine) step(i);
      }
    }
    __syncwarp();
    ptx::barrier_arrive_warp(&shared.empty[ring.stage]);
    ptx::barrier_wait(&shared.sums_empty[out.stage], out.phase ^ 1);
#pragma unroll
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      if (chunk > 0 && chunk >= chunks) break;
      shared.sums[out.stage][chunk][warp][lane] = {sums[chunk][0], sums[chunk][1], sums[chunk][2], sums[chunk][3]};
    }
    __syncwarp();
    ptx::barrier_arrive_warp(&shared.sums_full[out.stage]);
  }
}

// --- epilogue
// ------------------------------------------------------------------------------------------------------------

// The two features of this thread for one row.
template <DecodeStage kStage>
__device__ inline void decode_store(const ExpertDecode& params, int entry, int feature, float even, float odd) {
  if constexpr (kStage == DecodeStage::kGateUp) {
    const float a = ptx::swiglu(even, odd, params.swiglu_limit);
    static_cast<std::uint16_t*>(params.out)[static_cast<long>(entry) * (params.out_features / 2) + feature / 2] =
        static_cast<std::uint16_t>(ptx::pack_bf16(a, 0.f));
  } else {
    const float weight = params.routing[entry];
    float* row = static_cast<float*>(params.out) + static_cast<long>(entry) * params.out_features;
    *reinterpret_cast<float2*>(row + feature) = {even * weight, odd * weight};
  }
}

template <DecodeStage kStage, class C>
__device__ inline void decode_finish(DecodeShared<C>& shared, const ExpertDecode& params, const DecodeRange& range) {
  constexpr float kTwoTo62 = 4611686018427387904.f;
  const int lane = threadIdx.x % 32;
  ptx::Ring<2> in;
  for (int item = range.begin; item < range.end; ++item, in.advance()) {
    const int4 batch = shared.batches[item / range.tiles];
    const int feature = item % range.tiles * DecodeShared<C>::kFeatures + lane / 4 * 2;
    std::uint32_t bias = 0;
    if (params.bias != nullptr) {
      bias = *reinterpret_cast<const std::uint32_t*>(params.bias + static_cast<long>(batch.x) * params.out_features +
                                                     feature);
    }
    const float even = ptx::bf16_low(bias), odd = ptx::bf16_high(bias);
    ptx::barrier_wait(&shared.sums_full[in.stage], in.phase);
    float4 total[C::kChunks];
#pragma unroll
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      total[chunk] = {0, 0, 0, 0};
      if (chunk * 8 >= batch.z) break;
#pragma unroll
      for (int warp = 0; warp < C::kWarps; ++warp) {
        const float4 part = shared.sums[in.stage][chunk][warp][lane];
        total[chunk].x += part.x, total[chunk].y += part.y, total[chunk].z += part.z, total[chunk].w += part.w;
      }
    }
    __syncwarp();
    ptx::barrier_arrive_warp(&shared.sums_empty[in.stage]);
#pragma unroll
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      const int slot = chunk * 8 + lane % 4 * 2;
      const float4& t = total[chunk];
      if (slot < batch.z) {
        decode_store<kStage>(params, shared.order[batch.y + slot], feature, fmaf(t.x, kTwoTo62, even),
                             fmaf(t.z, kTwoTo62, odd));
      }
      if (slot + 1 < batch.z) {
        decode_store<kStage>(params, shared.order[batch.y + slot + 1], feature, fmaf(t.y, kTwoTo62, even),
                             fmaf(t.w, kTwoTo62, odd));
      }
    }
  }
}

// --- kernel
// --------------------------------------------------------------------------------------------------------------

template <class C>
__device__ inline void decode_setup(DecodeShared<C>& shared) {
  if (threadIdx.x != 0) return;
  for (int stage = 0; stage < C::kStages; ++stage) {
    ptx::barrier_init(&shared.full[stage], 1);
    ptx::barrier_init(&shared.empty[stage], C::kWarps * ptx::kWarpArrivals);
  }
  for (int buffer = 0; buffer < 2; ++buffer) {
    ptx::barrier_init(&shared.sums_full[buffer], C::kWarps * ptx::kWarpArrivals);
    ptx::barrier_init(&shared.sums_empty[buffer], ptx::kWarpArrivals);
  }
  ptx::barrier_init_fence();
}

// Dependencies. gate_up lets the next kernel start only after its own wait, so what precedes it (the routing) is
// visible to `down` from its first instruction; `down` waits for the activations alone, with its ring already filling.
template <DecodeStage kStage, class C>
__global__ void __launch_bounds__(DecodeShared<C>::kThreads, C::kBlocks)
    expert_decode_kernel(const __grid_constant__ ExpertDecode params) {
  extern __shared__ __align__(1024) std::uint8_t memory[];  // aligned by its declaration: an address of known space
  auto& shared = *reinterpret_cast<DecodeShared<C>*>(memory);
  decode_setup(shared);
  if constexpr (kStage == DecodeStage::kGateUp) ptx::dependency_wait();
  ptx::dependents_launch();
  const int batches = decode_sort(shared, params);  // its barriers publish the setup, too
  const int tiles = params.out_features / DecodeShared<C>::kFeatures;
  const int blocks = gridDim.x, block = blockIdx.x;
  const DecodeRange range = {static_cast<int>(static_cast<long>(batches) * tiles * block / blocks),
                             static_cast<int>(static_cast<long>(batches) * tiles * (block + 1) / blocks), tiles};
  const int warp = threadIdx.x / 32;
  if (warp == C::kWarps) {
    decode_load(shared, params, range);
  } else {
    if constexpr (kStage == DecodeStage::kDown) ptx::dependency_wait();
    if (warp < C::kWarps) {
      decode_consume<kStage>(shared, params, range);
    } else {
      decode_finish<kStage>(shared, params, range);
    }
  }
}

template <DecodeStage kStage, class C>
void launch_decode(const ExpertDecode& params, int multiprocessors, cudaStream_t stream) {
  constexpr std::size_t kBytes = sizeof(DecodeShared<C>);
  static_assert(kBytes <= (C::kBlocks == 1 ? 227 : 113) * 1024);
  rose::cuda::check_status(
      cudaFuncSetAttribute(expert_decode_kernel<kStage, C>, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
      "experts decode");
  rose::cuda::launch(&expert_decode_kernel<kStage, C>,
                     kStage == DecodeStage::kGateUp ? "experts decode gate_up" : "experts decode down",
                     {.grid = dim3(static_cast<unsigned>(multiprocessors * C::kBlocks)),
                      .block = dim3(DecodeShared<C>::kThreads),
                      .shared_bytes = kBytes,
                      .overlap_previous = true},
                     stream, params);
}

template <DecodeStage kStage>
void launch_decode(const ExpertDecode& params, int multiprocessors, cudaStream_t stream) {
  if (params.rows <= DecodeNarrow::kRows) {
    launch_decode<kStage, DecodeNarrow>(params, multiprocessors, stream);
  } else {
    launch_decode<kStage, DecodeWide>(params, multiprocessors, stream);
  }
}

}  // namespace rose::ops::cuda
