// MXFP4 (OCP Microscaling v1.0, section 5): e2m1 codes, two a byte (low nibble first), and one e8m0 scale for each
// group of 32 elements along a row. Value = kValues[code] * 2^(scale - 127); scale byte 255 is NaN and never valid in a
// weight.
#pragma once

#include <array>
#include <cstdint>

#include "weights/format.h"

namespace rose::mxfp4 {

inline constexpr std::array<float, 16> kValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
inline constexpr std::uint8_t kScaleNan = 255;
inline constexpr int kScaleBias = 127;
inline constexpr std::uint8_t kScaleAlwaysInFloat = 252;  // 6 * 2^125: up to here float and bfloat16 hold every code
inline constexpr std::int64_t kGroupBytes = kMxfp4Group / 2;

// 2^(byte - 127); NaN for 255.
float scale_value(std::uint8_t byte);

// columns (a multiple of 32) elements of one row. Exact wherever float can hold the value: beyond, at scale bytes 253
// (magnitudes 4 and 6) and 254 (2 and up), it becomes infinite.
void decode_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t columns, float* out);

// One row to the nearest code, ties to the even one. The scale of a group is 2^(floor(log2(amax)) - 2), as OCP MX has
// it, so that values between 6 and 8 times the scale saturate at 6. A group of zeros gets scale 1 and keeps its signs.
// All inputs finite (CHECK).
void encode_row(const float* values, std::int64_t columns, std::uint8_t* codes, std::uint8_t* scales);

// One row as bfloat16. False where a value lies beyond it (see kScaleAlwaysInFloat) or a scale is NaN.
bool to_bf16_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t columns, Bf16* out);

}  // namespace rose::mxfp4
