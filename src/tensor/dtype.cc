#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace rose {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

namespace {

float decode_e4m3(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

std::array<float, 256> e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) table[static_cast<std::size_t>(code)] = decode_e4m3(code);
  return table;
}

}  // namespace

float to_float(F8E4M3 value) {
  static const std::array<float, 256> table = e4m3_table();
  return table[value.bits];
}

F8E4M3 to_f8e4m3(float value) {
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return {static_cast<std::uint8_t>(sign | 0x7f)};
  if (magnitude >= 448.f) return {static_cast<std::uint8_t>(sign | 0x7e)};
  // The spacing of e4m3 at this magnitude; nearbyint rounds ties to even, and a carry into the next binade is the next
  // code.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int binade = magnitude == 0.f ? -6 : std::max(exponent - 1, -6);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - binade)));
  const int code = (binade + 6) * 8 + steps;  // subnormals: binade -6, steps 0..8
  return {static_cast<std::uint8_t>(sign | (code > 0x7e ? 0x7e : code))};
}

}  // namespace rose
