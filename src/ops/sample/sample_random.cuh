// base/random.h on the device: the same bits as on the host.
#pragma once

#include <cstdint>

namespace rose::ops::cuda {

__device__ inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
__device__ inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  return mix64(mix64(seed) ^ mix64(counter ^ 0xd1b54a32d192ed03ull));
}
// floor(random_unit * total): a whole sum exceeds the one where it exceeds the other.
__device__ inline std::uint64_t draw_below(std::uint64_t total, std::uint64_t seed, std::uint64_t counter) {
  return __umul64hi(random_bits(seed, counter) >> 40 << 40, total);
}

}  // namespace rose::ops::cuda
