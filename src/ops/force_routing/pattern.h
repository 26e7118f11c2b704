// The choice itself, shared by the CPU and the kernel so that both give the same ids. (nvcc reads this file: no fmt, no
// Tensor.)
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ROSE_HOST_DEVICE __host__ __device__
#else
#define ROSE_HOST_DEVICE
#endif

namespace rose::ops {

struct RoutingPattern {
  static constexpr int kExpertsMax = 256;

  bool skewed = false;
  std::uint32_t experts = 1;
  std::uint32_t stride = 1;               // prime to experts
  std::uint32_t below[kExpertsMax] = {};  // skewed: 2^32 * P(rank <= this); of the last, what is left
};

// The expert that ranks `rank`-th in the layer.
ROSE_HOST_DEVICE inline std::int32_t expert_of_rank(const RoutingPattern& pattern, std::uint32_t layer,
                                                    std::uint64_t rank) {
  return static_cast<std::int32_t>((rank + 7ull * layer) % pattern.experts * pattern.stride % pattern.experts);
}

// First rank whose share of 2^32 reaches beyond `draw`.
ROSE_HOST_DEVICE inline std::uint32_t rank_of_draw(const RoutingPattern& pattern, std::uint32_t draw) {
  std::uint32_t low = 0, high = pattern.experts - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (draw < pattern.below[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// SplitMix64's finaliser over the four numbers that make a draw.
ROSE_HOST_DEVICE inline std::uint32_t routing_draw(std::uint32_t layer, std::uint32_t row, std::uint32_t choice,
                                                   std::uint32_t attempt) {
  std::uint64_t x = (static_cast<std::uint64_t>(layer) << 48 ^ static_cast<std::uint64_t>(row) << 16 ^
                     static_cast<std::uint64_t>(choice) << 8 ^ attempt) +
                    0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 32);
}

// Writes the k experts of a row; k at most pattern.experts and 256.
ROSE_HOST_DEVICE inline void choose_forced(const RoutingPattern& pattern, std::uint32_t layer, std::uint32_t row, int k,
                                           std::int32_t* chosen) {
  constexpr std::uint32_t kAttempts = 32;
  for (int j = 0; j < k; ++j) {
    if (!pattern.skewed) {
      chosen[j] = expert_of_rank(pattern, layer, static_cast<std::uint64_t>(row) * k + j);
      continue;
    }
    std::uint32_t rank = 0;
    for (std::uint32_t attempt = 0;; ++attempt) {
      // A row that holds all favourites takes the next rank that is free.
      rank = attempt < kAttempts
                 ? rank_of_draw(pattern, routing_draw(layer, row, static_cast<std::uint32_t>(j), attempt))
                 : (rank + 1) % pattern.experts;
      const std::int32_t expert = expert_of_rank(pattern, layer, rank);
      bool taken = false;
      for (int other = 0; other < j; ++other) taken = taken || chosen[other] == expert;
      if (!taken) break;
    }
    chosen[j] = expert_of_rank(pattern, layer, rank);
  }
}

}  // namespace rose::ops
