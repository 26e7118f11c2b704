#include "weights/mxfp4/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rose::mxfp4 {
namespace {

// Magnitude (>= 0, in units of the scale) to the nearest e2m1 code. Codes grow with the magnitude, so a tie goes to the
// even code of the two neighbours; beyond 6 saturates.
std::uint8_t nearest_code(float magnitude) {
  constexpr std::array<float, 7> kMidpoints = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  std::uint8_t code = 0;
  for (std::size_t lower = 0; lower < kMidpoints.size(); ++lower) {
    const bool above = magnitude > kMidpoints[lower] || (magnitude == kMidpoints[lower] && lower % 2 == 1);
    if (!above) break;
    code = static_cast<std::uint8_t>(lower + 1);
  }
  return code;
}

using Bf16Tables = std::array<std::array<Bf16, 16>, 256>;

const Bf16Tables& bf16_tables() {
  static const Bf16Tables tables = [] {
    Bf16Tables made;
    for (int scale = 0; scale < 256; ++scale) {
      const float factor = scale_value(static_cast<std::uint8_t>(scale));
      for (std::size_t code = 0; code < 16; ++code) {
        made[static_cast<std::size_t>(scale)][code] = to_bf16(kValues[code] * factor);
      }
    }
    return made;
  }();
  return tables;
}

std::uint8_t encode_group(const float* values, std::uint8_t* codes) {
  float amax = 0.0f;
  for (int i = 0; i < kMxfp4Group; ++i) {
    CHECK(std::isfinite(values[i]), "element {} is {}", i, values[i]);
    amax = std::max(amax, std::fabs(values[i]));
  }
  const int exponent = amax == 0.0f ? 0 : std::clamp(std::ilogb(amax) - 2, -127, 127);
  for (int i = 0; i < kMxfp4Group; i += 2) {
    std::uint8_t byte = 0;
    for (int half = 0; half < 2; ++half) {
      const float value = values[i + half];
      const std::uint8_t sign = std::signbit(value) ? 8 : 0;
      const std::uint8_t code = nearest_code(std::ldexp(std::fabs(value), -exponent)) | sign;
      byte = static_cast<std::uint8_t>(byte | code << (4 * half));
    }
    codes[i / 2] = byte;
  }
  return static_cast<std::uint8_t>(exponent + kScaleBias);
}

}  // namespace

float scale_value(std::uint8_t byte) {
  if (byte == kScaleNan) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, byte - kScaleBias);
}

void decode_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t columns, float* out) {
  CHECK(columns % kMxfp4Group == 0, "{} columns", columns);
  for (std::int64_t group = 0; group < columns / kMxfp4Group; ++group) {
    const float scale = scale_value(scales[group]);
    const std::uint8_t* bytes = codes + group * kGroupBytes;
    float* values = out + group * kMxfp4Group;
    for (std::int64_t i = 0; i < kGroupBytes; ++i) {
      values[2 * i] = kValues[bytes[i] & 15] * scale;
      values[2 * i + 1] = kValues[bytes[i] >> 4] * scale;
    }
  }
}

void encode_row(const float* values, std::int64_t columns, std::uint8_t* codes, std::uint8_t* scales) {
  CHECK(columns % kMxfp4Group == 0, "{} columns", columns);
  for (std::int64_t group = 0; group < columns / kMxfp4Group; ++group) {
    scales[group] = encode_group(values + group * kMxfp4Group, codes + group * kGroupBytes);
  }
}

bool to_bf16_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t columns, Bf16* out) {
  CHECK(columns % kMxfp4Group == 0, "{} columns", columns);
  const Bf16Tables& tables = bf16_tables();
  bool exact = true;
  for (std::int64_t group = 0; group < columns / kMxfp4Group; ++group) {
    const std::array<Bf16, 16>& table = tables[scales[group]];
    const std::uint8_t* bytes = codes + group * kGroupBytes;
    Bf16* values = out + group * kMxfp4Group;
    for (std::int64_t i = 0; i < kGroupBytes; ++i) {
      values[2 * i] = table[bytes[i] & 15];
      values[2 * i + 1] = table[bytes[i] >> 4];
    }
    // 6 * 2^125 is the largest product that bfloat16 holds.
    if (scales[group] > kScaleAlwaysInFloat) {
      exact = exact && scales[group] != kScaleNan &&
              std::all_of(values, values + kMxfp4Group, [](Bf16 value) { return std::isfinite(to_float(value)); });
    }
  }
  return exact;
}

}  // namespace rose::mxfp4
