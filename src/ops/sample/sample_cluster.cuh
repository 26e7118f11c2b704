// One row of logits spread over the shared memory of a cluster, and what its blocks tell each other.
//
// Segment s (0..255) belongs to warp s % 32 of block s / 32 and holds tokens [32 chunk s, 32 chunk (s + 1)); the last
// ones are filled up with -inf. Two ways through a segment: lane by lane (element 32 j + lane) where the order does not
// matter, and a chunk of neighbours a lane (element chunk lane + j) where tokens are counted or added up by rising id.
//
// All sums are of integers: equal inputs give equal tokens, and every block finds the same.
#pragma once

#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/sample/sample_params.cuh"

namespace rose::ops::cuda {

inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ inline void cluster_sync() {
  __syncwarp();
  cluster_arrive();
  cluster_wait();
}
__device__ inline int cluster_block() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// The same variable in the shared memory of another block of the cluster.
template <class T>
__device__ T* in_block(T* shared, int block) {
  std::uint64_t address;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(shared), "r"(block));
  return reinterpret_cast<T*>(address);
}

// The bucket in which the wanted prefix of the falling order ends.
struct ChosenBucket {
  int bucket;  // -1: nowhere, all tokens are wanted
  std::uint32_t count_before, count, ties;
  std::uint64_t sum_before;
};

struct SampleShared {
  // Histograms, one copy a lane so that equal digits in a warp never meet. Zero whenever nobody is counting.
  std::uint32_t counts[SampleConfig::kBuckets * 32];
  std::uint32_t sums_low[SampleConfig::kBuckets * 32];
  std::uint32_t sums_high[SampleConfig::kBuckets * 32];
  // Of this block, read by the others; of all blocks.
  std::uint64_t block_sums[2][SampleConfig::kBuckets], row_sums[SampleConfig::kBuckets];
  std::uint32_t block_counts[2][SampleConfig::kBuckets], row_counts[SampleConfig::kBuckets];
  std::uint64_t exchanged[2][SampleConfig::kSegments];  // written by all blocks
  std::uint64_t top[SampleConfig::kTopMax];             // in block 0: largest logits, order_of()
  ChosenBucket chosen;
  SampleOptions options;  // of the row at hand: registers are short
  int row;
};
inline constexpr int kSampleSharedBytes = (sizeof(SampleShared) + 15) / 16 * 16;

struct SampleLane {
  SampleShared* shared;
  float* segment;
  int lane, warp, chunk;
  int exchange_turn = 0, histogram_turn = 0;

  __device__ int index() const { return cluster_block() * SampleConfig::kWarps + warp; }  // of the segment

  __device__ int first_token() const { return index() * 32 * chunk; }
  __device__ float* own_chunk() const { return segment + lane * chunk; }
};

// Rises with the number; -0 and 0 are one.
__device__ inline std::uint32_t ordered(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_ordered(std::uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
// Larger is earlier in the falling order, ties by rising token. All ones: a NaN.
inline constexpr std::uint64_t kNan = ~std::uint64_t{0};
__device__ inline std::uint64_t order_of(std::uint32_t key, int token) {
  return static_cast<std::uint64_t>(key) << 32 | ~static_cast<std::uint32_t>(token);
}
__device__ inline int token_of(std::uint64_t order) { return static_cast<int>(~static_cast<std::uint32_t>(order)); }

// exp(x) for x <= 0, as 2^(x log2 e) with log2 e in two parts: the product rounds once, the power errs by 2^-22.
__device__ inline float exp_below_zero(float x) {
  return ptx::exp2_fast(__fmaf_rn(x, 0x1.715476p+0f, x * 0x1.4ae0c0p-26f));
}

template <class T>
__device__ T inclusive_scan(T value, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

// The warp's value (the same in all lanes) goes to all blocks; then each lane takes those of segments 8 lane .. + 7.
// Two buffers in turn: whoever writes the third exchange has passed the second, so all have read the first.
__device__ inline void exchange(SampleLane& row, std::uint64_t value, std::uint64_t (&neighbours)[8]) {
  row.exchange_turn ^= 1;
  std::uint64_t* const all = row.shared->exchanged[row.exchange_turn];
  // Stored so that the reads below meet no bank twice.
  const int place = row.index() % 8 * 32 + row.index() / 8;
  if (row.lane < SampleConfig::kBlocks) *in_block(all + place, row.lane) = value;
  cluster_sync();
#pragma unroll
  for (int j = 0; j < 8; ++j) neighbours[j] = all[j * 32 + row.lane];
}

__device__ inline std::uint64_t cluster_max(SampleLane& row, std::uint64_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  std::uint64_t of_segments[8];
  exchange(row, value, of_segments);
#pragma unroll
  for (int j = 0; j < 8; ++j) value = of_segments[j] > value ? of_segments[j] : value;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sums over the lanes of the row: of those before this one (by rising token where each lane brings its chunk's), of
// all.
struct RowScan {
  std::uint64_t before, total;
};
__device__ inline RowScan cluster_scan(SampleLane& row, std::uint64_t value) {
  const std::uint64_t inclusive = inclusive_scan(value, row.lane);
  std::uint64_t of_segments[8];
  exchange(row, __shfl_sync(kAllLanes, inclusive, 31), of_segments);
  std::uint64_t eight = 0, before_own = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (j == row.index() % 8) before_own = eight;
    eight += of_segments[j];
  }
  const std::uint64_t reached = inclusive_scan(eight, row.lane);
  const std::uint64_t before = __shfl_sync(kAllLanes, reached - eight + before_own, row.index() / 8);
  return {before + inclusive - value, __shfl_sync(kAllLanes, reached, 31)};
}

}  // namespace rose::ops::cuda
