#include "weights/fp8/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "weights/mxfp4/mxfp4.h"

namespace rose::fp8 {
namespace {

constexpr int kExponentMin = -126;
constexpr int kExponentMax = 127;

// Exponents of a group relative to its tile's scale: at most 9 (a group of codes 0.5 alone), and from -20 down every
// code rounds to zero, so that one table serves them all.
constexpr int kShiftMin = -20;
constexpr int kShiftMax = 9;
constexpr int kShiftExactMin = -8;  // from here up every code is exact

// Byte of two codes -> two e4m3 elements, in memory order.
using PairTable = std::array<std::array<F8E4M3, 2>, 256>;
using PairTables = std::array<PairTable, kShiftMax - kShiftMin + 1>;

const PairTables& pair_tables() {
  static const PairTables tables = [] {
    PairTables made;
    for (int shift = kShiftMin; shift <= kShiftMax; ++shift) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        made[static_cast<std::size_t>(shift - kShiftMin)][byte] = {
            to_f8e4m3(std::ldexp(mxfp4::kValues[byte & 15], shift)),
            to_f8e4m3(std::ldexp(mxfp4::kValues[byte >> 4], shift))};
      }
    }
    return made;
  }();
  return tables;
}

// Magnitudes as whole numbers that order them across scales: 2 * log2 rounded down, plus 1 for a mantissa of 1.5.
constexpr std::array<int, 8> kOrder = {0, -2, 0, 1, 2, 3, 4, 5};

// Codes without their sign grow with the magnitude.
int largest_magnitude_code(const std::uint8_t* codes) {
  int largest = 0;
  for (std::int64_t i = 0; i < mxfp4::kGroupBytes; ++i) {
    largest = std::max(largest, std::max(codes[i] & 7, (codes[i] >> 4) & 7));
  }
  return largest;
}

bool group_exact(const std::uint8_t* codes, const F8E4M3* written, int shift) {
  for (std::int64_t i = 0; i < kMxfp4Group; ++i) {
    const int code = (codes[i / 2] >> (4 * (i % 2))) & 15;
    if (static_cast<double>(to_float(written[i])) != std::ldexp(static_cast<double>(mxfp4::kValues[code]), shift)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int tile_exponent(double amax) {
  if (amax == 0.0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(amax, &exponent);  // amax = fraction * 2^exponent, 448 = 0.875 * 2^9
  return std::clamp(exponent - (fraction <= 0.875 ? 9 : 8), kExponentMin, kExponentMax);
}

bool encode_tile(const float* values, std::int64_t stride, std::int64_t rows, std::int64_t columns, F8E4M3* payload,
                 std::int64_t payload_stride, float* scale) {
  float amax = 0.0f;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const float value = values[r * stride + c];
      CHECK(std::isfinite(value), "element ({}, {}) is {}", r, c, value);
      amax = std::max(amax, std::fabs(value));
    }
  }
  const int exponent = tile_exponent(amax);
  *scale = std::ldexp(1.0f, exponent);
  bool exact = true;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const float value = values[r * stride + c];
      const F8E4M3 code = to_f8e4m3(std::ldexp(value, -exponent));
      payload[r * payload_stride + c] = code;
      exact = exact && std::ldexp(static_cast<double>(to_float(code)), exponent) == static_cast<double>(value);
    }
  }
  return exact;
}

TileOutcome encode_tile_mxfp4(const std::uint8_t* codes, std::int64_t codes_stride, const std::uint8_t* scales,
                              std::int64_t scales_stride, std::int64_t rows, std::int64_t columns, F8E4M3* payload,
                              std::int64_t payload_stride, float* scale) {
  const std::int64_t groups = columns / kMxfp4Group;
  int exponent_min = kExponentMax + 1;
  int exponent_max = kExponentMin - 2;
  int order_max = 2 * exponent_max;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const int largest = largest_magnitude_code(codes + r * codes_stride + g * mxfp4::kGroupBytes);
      if (largest == 0) continue;
      const int exponent = scales[r * scales_stride + g] - mxfp4::kScaleBias;
      exponent_min = std::min(exponent_min, exponent);
      exponent_max = std::max(exponent_max, exponent);
      order_max = std::max(order_max, 2 * exponent + kOrder[static_cast<std::size_t>(largest)]);
    }
  }
  const bool zeros = exponent_min > exponent_max;
  const int odd = order_max & 1;
  const double amax = zeros ? 0.0 : std::ldexp(odd == 0 ? 1.0 : 1.5, (order_max - odd) / 2);
  const int exponent = tile_exponent(amax);
  *scale = std::ldexp(1.0f, exponent);

  TileOutcome outcome;
  if (!zeros) outcome.spread = exponent_max - exponent_min;
  const PairTables& tables = pair_tables();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::uint8_t* from = codes + r * codes_stride + g * mxfp4::kGroupBytes;
      F8E4M3* to = payload + r * payload_stride + g * kMxfp4Group;
      // A group of zeros may carry any scale: its own shift would be out of the tables' range.
      const int shift = std::clamp(scales[r * scales_stride + g] - mxfp4::kScaleBias - exponent, kShiftMin, kShiftMax);
      const PairTable& table = tables[static_cast<std::size_t>(shift - kShiftMin)];
      for (std::int64_t i = 0; i < mxfp4::kGroupBytes; ++i) {
        to[2 * i] = table[from[i]][0];
        to[2 * i + 1] = table[from[i]][1];
      }
      if (shift < kShiftExactMin) outcome.exact = outcome.exact && group_exact(from, to, shift);
    }
  }
  return outcome;
}

void decode_row(const F8E4M3* payload, const float* scales, std::int64_t column, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = to_float(payload[i]) * scales[(column + i) / kFp8Tile];
}

}  // namespace rose::fp8
