// FP8: e4m3 elements, one power-of-two f32 scale for each tile of 128 x 128.
//
// Why a power of two: the scale of a tile of MXFP4 values is then exact wherever the group exponents of the tile lie
// close enough together (amax / 448 would round most codes). With the smallest exponent s such that amax <= 448 * 2^s,
// a tile whose group exponents span at most 14 is exact: its largest value is at most 6 * 2^e_max <= 384 * 2^(e_max -
// 6), so s <= e_max - 6, and its smallest step 0.5 * 2^e_min >= 2^-9 * 2^(e_min + 8) >= 2^-9 * 2^s is e4m3's smallest
// subnormal.
#pragma once

#include <cstdint>

#include "weights/format.h"

namespace rose::fp8 {

// Smallest s in [-126, 127] with amax <= 448 * 2^s; 0 for amax = 0. The lower end keeps the scale a normal float.
int tile_exponent(double amax);  // double: MXFP4 reaches 6 * 2^127

// A tile of rows x columns (each at most 128) of a row-major matrix. Strides in elements.
// Rounds to nearest, ties to even; true when every value survives exactly. Values finite (CHECK).
bool encode_tile(const float* values, std::int64_t stride, std::int64_t rows, std::int64_t columns, F8E4M3* payload,
                 std::int64_t payload_stride, float* scale);

// The same from MXFP4, without going through floats. codes_stride in bytes, scales_stride in groups; columns a multiple
// of 32; no scale is 255. spread: e_max - e_min over groups holding a nonzero value, -1 for a tile of zeros.
struct TileOutcome {
  bool exact = true;
  int spread = -1;
};
TileOutcome encode_tile_mxfp4(const std::uint8_t* codes, std::int64_t codes_stride, const std::uint8_t* scales,
                              std::int64_t scales_stride, std::int64_t rows, std::int64_t columns, F8E4M3* payload,
                              std::int64_t payload_stride, float* scale);

// columns elements of one row; scales: the row's tile scales. `column` is the position of the first element in its row.
void decode_row(const F8E4M3* payload, const float* scales, std::int64_t column, std::int64_t columns, float* out);

}  // namespace rose::fp8
