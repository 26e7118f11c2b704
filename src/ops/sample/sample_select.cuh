// Where a prefix of the tokens in falling order ends, without sorting: radix selection on the ordered bits of the
// number, eight bits a pass, over shared memory. A pass counts tokens (and adds up weights) by the next digit among
// those that agree with the digits found so far; the bucket in which the prefix ends gives the next digit.
//
// Weights are added as integers, 2^44 for the largest: exact in any order, off by at most vocabulary * 2^-45 (7e-9) of
// the largest weight, less than one rounding of an f32 weight.
#pragma once

#include "ops/sample/sample_cluster.cuh"

namespace rose::ops::cuda {

// exp((z - largest z) / temperature), rounded as the reference rounds it up to the exponential.
struct Weigher {
  float top, temperature;

  __device__ float operator()(float z) const {
    return z == top ? 1.f
                    : exp_below_zero((z - top) / temperature);  // inf - inf: equally infinite logits are equally likely
  }
};

// What the prefix is: the shortest with `count` tokens or a `share` of the weight, whichever is shorter.
struct Wanted {
  std::uint32_t count = 0xffffffffu;
  double share = 1;  // from 1 on: all
  Weigher weigher{};

  __device__ bool weighs() const { return share < 1; }
};

// Tokens with keys above `least`, and of those with `least` the first `ties` by rising token.
struct Threshold {
  std::uint32_t least = 0;
  std::uint32_t ties = 0xffffffffu;
  bool splits_ties = false;
};

__device__ inline std::uint64_t fixed_point(float weight) { return __float2ull_rn(weight * 0x1p44f); }

__device__ inline void count_digits(const SampleLane& row, const Wanted& wanted, int shift, std::uint32_t found) {
  SampleShared& shared = *row.shared;
  for (int j = 0; j < row.chunk; ++j) {
    const float z = row.segment[j * 32 + row.lane];
    const std::uint32_t key = ordered(z);
    if (shift < 24 && key >> (shift + SampleConfig::kDigitBits) != found) continue;
    const std::uint32_t slot = ((key >> shift) % SampleConfig::kBuckets) * 32 + static_cast<std::uint32_t>(row.lane);
    atomicAdd(&shared.counts[slot], 1u);
    if (!wanted.weighs()) continue;
    const std::uint64_t weight = fixed_point(wanted.weigher(z));
    const auto low = static_cast<std::uint32_t>(weight);
    auto high = static_cast<std::uint32_t>(weight >> 32);
    if (low != 0) {
      const std::uint32_t old = atomicAdd(&shared.sums_low[slot], low);
      high += old + low < old ? 1 : 0;
    }
    if (high != 0) atomicAdd(&shared.sums_high[slot], high);
  }
}

// row_counts and row_sums from the histograms of all blocks; the histograms are zero again.
__device__ inline void merge_histograms(SampleLane& row, bool weighs) {
  SampleShared& shared = *row.shared;
  row.histogram_turn ^= 1;
  std::uint32_t* const counts = shared.block_counts[row.histogram_turn];
  std::uint64_t* const sums = shared.block_sums[row.histogram_turn];
  __syncthreads();
#pragma unroll
  for (int b = 0; b < SampleConfig::kBuckets / SampleConfig::kWarps; ++b) {
    const int bucket = row.warp * (SampleConfig::kBuckets / SampleConfig::kWarps) + b, slot = bucket * 32 + row.lane;
    const std::uint32_t count = __reduce_add_sync(kAllLanes, shared.counts[slot]);
    shared.counts[slot] = 0;
    std::uint64_t sum = 0;
    if (weighs) {
      const std::uint32_t low = shared.sums_low[slot];
      sum = __reduce_add_sync(kAllLanes, low & 0xffff);
      sum += static_cast<std::uint64_t>(__reduce_add_sync(kAllLanes, low >> 16)) << 16;
      sum += static_cast<std::uint64_t>(__reduce_add_sync(kAllLanes, shared.sums_high[slot])) << 32;
      shared.sums_low[slot] = shared.sums_high[slot] = 0;
    }
    if (row.lane == 0) {
      counts[bucket] = count;
      sums[bucket] = sum;
    }
  }
  cluster_sync();
  // Four threads a bucket, two blocks a thread.
  static_assert(SampleConfig::kThreads == 4 * SampleConfig::kBuckets && SampleConfig::kBlocks == 8);
  const int bucket = static_cast<int>(threadIdx.x) / 4, block = static_cast<int>(threadIdx.x) % 4 * 2;
  std::uint32_t count = *in_block(counts + bucket, block) + *in_block(counts + bucket, block + 1);
  std::uint64_t sum = weighs ? *in_block(sums + bucket, block) + *in_block(sums + bucket, block + 1) : 0;
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    count += __shfl_xor_sync(kAllLanes, count, offset);
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (block == 0) {
    shared.row_counts[bucket] = count;
    shared.row_sums[bucket] = sum;
  }
  __syncthreads();
}

// Has a prefix of so many tokens and so much weight reached what is wanted?
struct Goal {
  std::uint32_t count;
  double sum;

  __device__ bool reached(std::uint32_t tokens, std::uint64_t weight) const {
    return tokens >= count || static_cast<double>(weight) >= sum;
  }
};

// How many of `count` equal tokens it takes; all of them reach the goal.
__device__ inline std::uint32_t ties_wanted(const Goal& goal, const ChosenBucket& bucket, std::uint64_t sum) {
  const std::uint64_t weight = sum / bucket.count;
  std::uint32_t low = 0, high = bucket.count;  // `low` do not, `high` do
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (goal.reached(bucket.count_before + middle, bucket.sum_before + middle * weight)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

// One warp: the first bucket, from the largest digit down, in which the goal is reached. The first pass sees all
// weights, so it sets the goal's sum.
__device__ inline void choose_bucket(const SampleLane& row, const Wanted& wanted, int shift, std::uint32_t count_before,
                                     std::uint64_t sum_before, Goal& goal) {
  SampleShared& shared = *row.shared;
  std::uint32_t count = 0;
  std::uint64_t sum = 0;
  const int last = SampleConfig::kBuckets - 1 - 8 * row.lane;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    count += shared.row_counts[last - j];
    sum += shared.row_sums[last - j];
  }
  const std::uint32_t counted = inclusive_scan(count, row.lane);
  const std::uint64_t summed = inclusive_scan(sum, row.lane);
  if (shift == 24 && wanted.weighs()) {
    goal.sum = wanted.share * static_cast<double>(__shfl_sync(kAllLanes, summed, 31));
  }
  ChosenBucket chosen{-1, count_before + counted - count, 0, 0, sum_before + summed - sum};
  std::uint64_t chosen_sum = 0;
  for (int j = 0; j < 8; ++j) {
    count = shared.row_counts[last - j];
    sum = shared.row_sums[last - j];
    if (count > 0 && goal.reached(chosen.count_before + count, chosen.sum_before + sum)) {
      chosen.bucket = last - j;
      chosen.count = count;
      chosen_sum = sum;
      break;
    }
    chosen.count_before += count;
    chosen.sum_before += sum;
  }
  const std::uint32_t lanes = __ballot_sync(kAllLanes, chosen.bucket >= 0);
  if (row.lane == (lanes == 0 ? 0 : __ffs(static_cast<int>(lanes)) - 1)) {
    if (lanes != 0) chosen.ties = shift == 0 ? ties_wanted(goal, chosen, chosen_sum) : chosen.count;
    shared.chosen = chosen;
  }
}

__device__ inline Threshold select_prefix(SampleLane& row, const Wanted& wanted) {
  Goal goal{wanted.count, __longlong_as_double(0x7ff0000000000000)};
  std::uint32_t found = 0, count_before = 0;
  std::uint64_t sum_before = 0;
  for (int shift = 24;; shift -= SampleConfig::kDigitBits) {
    count_digits(row, wanted, shift, found);
    merge_histograms(row, wanted.weighs());
    if (row.warp == 0) choose_bucket(row, wanted, shift, count_before, sum_before, goal);
    __syncthreads();
    const ChosenBucket chosen = row.shared->chosen;
    if (chosen.bucket < 0) return {};
    found = found << SampleConfig::kDigitBits | static_cast<std::uint32_t>(chosen.bucket);
    // The whole bucket is wanted: its smallest possible key will do.
    const bool whole = chosen.count == 1 || (!wanted.weighs() && chosen.count_before + chosen.count == wanted.count);
    if (whole) return {.least = found << shift};
    if (shift == 0) return {.least = found, .ties = chosen.ties, .splits_ties = chosen.ties < chosen.count};
    count_before = chosen.count_before;
    sum_before = chosen.sum_before;
  }
}

// Before this lane's chunk: tokens above the threshold, and at it.
struct Ranks {
  std::uint32_t above, ties, above_total;
};
__device__ inline Ranks rank_tokens(SampleLane& row, std::uint32_t least) {
  std::uint64_t counted = 0;  // above << 32 | ties
  for (int j = 0; j < row.chunk; ++j) {
    const std::uint32_t key = ordered(row.own_chunk()[j]);
    counted += static_cast<std::uint64_t>(key > least) << 32 | static_cast<std::uint64_t>(key == least);
  }
  const RowScan scan = cluster_scan(row, counted);
  return {static_cast<std::uint32_t>(scan.before >> 32), static_cast<std::uint32_t>(scan.before),
          static_cast<std::uint32_t>(scan.total >> 32)};
}

}  // namespace rose::ops::cuda
