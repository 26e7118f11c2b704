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

// Two floats as e4m3, `low` in the lower byte; nearest, saturating at 448.
__device__ inline std::uint16_t pack_e4m3(float low, float high) {
  std::uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace rose::ptx
