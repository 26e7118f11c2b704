// Counter-based random numbers: the value depends on (seed, counter) alone, so that a sequence samples the same tokens
// in whatever batch it runs, and a device kernel can compute the same value as the host.
#pragma once

#include <cstdint>

namespace rose {

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64-bit values with good avalanche.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 64 random bits for draw `counter` of stream `seed`.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  return mix64(mix64(seed) ^ mix64(counter ^ 0xd1b54a32d192ed03ull));
}

// Uniform in [0, 1) with 24 bits, exact in float.
constexpr float random_unit(std::uint64_t seed, std::uint64_t counter) {
  return static_cast<float>(random_bits(seed, counter) >> 40) * 0x1p-24f;
}

}  // namespace rose
