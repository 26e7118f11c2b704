// Random weight values as functions of a key and of the element's index in the whole weight, so that every slice holds
// what the whole weight holds there. The CPU and the kernel share this file and give the same bits: hashes are
// integers, and the one floating-point step is a single exact-by-rule product. (nvcc reads this file: no fmt, no
// Tensor.)
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define ROSE_HOST_DEVICE __host__ __device__
#else
#define ROSE_HOST_DEVICE
#endif

namespace rose {

enum class RandomKind : std::uint8_t {
  kBf16,    // unit: an element;   uniform around center / 65536 in 2^16 steps, times 65536 * scale
  kCodes,   // unit: 16 bytes, a group of 32 mxfp4 codes, all 16 equally often
  kScales,  // unit: a byte, exponent - 2 .. exponent + 2 equally often
};

// Where values go and which they are: unit u of row r of matrix m has index
// first + m * matrix_stride + r * row_stride + u in the whole weight.
struct RandomRegion {
  RandomKind kind = RandomKind::kBf16;
  void* to = nullptr;  // [matrices, rows, units], dense
  std::int64_t matrices = 1, rows = 1, units = 0;
  std::int64_t first = 0, matrix_stride = 0, row_stride = 0;
  std::uint64_t key = 0;
  float scale = 0;            // kBf16
  std::int32_t center = 0;    // kBf16
  std::int32_t exponent = 0;  // kScales
};

// SplitMix64 (Steele, Lea, Flood 2014): element `index` of the sequence that begins at `key`.
ROSE_HOST_DEVICE inline std::uint64_t random_hash(std::uint64_t key, std::uint64_t index) {
  std::uint64_t x = key + (index + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// (center + odd) * scale with odd in -65535, -65533 .. 65535, rounded to bf16 (nearest, ties to even). Never NaN.
ROSE_HOST_DEVICE inline std::uint16_t random_bf16(const RandomRegion& region, std::uint64_t index) {
  const auto step = static_cast<std::int32_t>(random_hash(region.key, index) >> 48);
  // Below 2^24, so exact as a float.
  const float value = static_cast<float>(region.center + 2 * step - 65535) * region.scale;
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Half `half` (0, 1) of the 16 bytes of a group's codes, first code in the lowest bits.
ROSE_HOST_DEVICE inline std::uint64_t random_codes(const RandomRegion& region, std::uint64_t index, int half) {
  return random_hash(region.key, 2 * index + static_cast<std::uint64_t>(half));
}

ROSE_HOST_DEVICE inline std::uint8_t random_scale(const RandomRegion& region, std::uint64_t index) {
  const auto fifth = static_cast<std::int32_t>(((random_hash(region.key, index) >> 32) * 5) >> 32);
  return static_cast<std::uint8_t>(region.exponent - 2 + fifth);
}

}  // namespace rose
