// Number formats in registers, and the special-function unit.
#pragma once

#include <cstdint>

namespace rose::ptx {

// Two floats as bf16, `low` in the lower half; nearest, ties to even.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ inline float bf16_low(std::uint32_t packed) { return __uint_as_float(packed << 16); }
__device__ inline float bf16_high(std::uint32_t packed) { return __uint_as_float(packed & 0xffff0000u); }
__device__ inline float bf16_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

// Two products of bf16.
__device__ inline std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Two floats as e4m3, `low` in the lower byte; nearest, saturating at 448.
__device__ inline std::uint16_t pack_e4m3(float low, float high) {
  std::uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

// Two e4m3, the first in the lower byte, as f16 and as bf16: both exact, NaN stays NaN.
__device__ inline std::uint32_t e4m3_to_f16(std::uint32_t lower_half) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(packed) : "h"(static_cast<std::uint16_t>(lower_half)));
  return packed;
}
__device__ inline std::uint32_t e4m3_to_bf16(std::uint32_t lower_half) {
  float low, high;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}\n"
      : "=f"(low), "=f"(high)
      : "r"(e4m3_to_f16(lower_half)));
  return pack_bf16(low, high);
}

// Eight e2m1 codes as four pairs (i, i + 4) of bf16, times 2^-126. The multiplications are two shifts each: the masks
// keep them from meeting.
__device__ inline void e2m1_to_bf16(std::uint32_t codes, std::uint32_t (&pairs)[4]) {
  constexpr std::uint32_t kEven = 0x000f000fu, kOdd = 0x00f000f0u, kKept = 0x81c081c0u;
  const std::uint32_t upper = codes >> 8;
  pairs[0] = ((codes & kEven) * 0x1040u) & kKept;
  pairs[1] = ((codes & kOdd) * 0x0104u) & kKept;
  pairs[2] = ((upper & kEven) * 0x1040u) & kKept;
  pairs[3] = ((upper & kOdd) * 0x0104u) & kKept;
}

// Two floats as f16, `low` in the lower half; nearest, ties to even.
__device__ inline std::uint32_t pack_f16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 128 numbers, eight a lane of half a warp, as e4m3 with one scale, which all its lanes get: the largest magnitude over
// 448, or 1 where that is so small that its reciprocal would overflow; the numbers then become zeros.
__device__ inline float quantize_half_warp(const float (&x)[8], uint2& packed) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  const float scale = largest > 1e-30f ? largest / 448.f : 1.f, inverse = 1.f / scale;
  const auto four = [&](int i) {
    return pack_e4m3(x[i] * inverse, x[i + 1] * inverse) |
           static_cast<std::uint32_t>(pack_e4m3(x[i + 2] * inverse, x[i + 3] * inverse)) << 16;
  };
  packed = {four(0), four(4)};
  return scale;
}

}  // namespace rose::ptx
