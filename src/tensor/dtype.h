// Element types, and the exact conversions between float and the small formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rose {

enum class DType : std::uint8_t { kF32, kBf16, kF8E4M3, kU8, kI32, kI64 };

constexpr std::size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kF8E4M3:
    case DType::kU8:
      return 1;
    case DType::kI64:
      return 8;
  }
  return 0;
}

std::string_view dtype_name(DType dtype);  // "f32", "bf16", "f8_e4m3", "u8", "i32", "i64"

// bfloat16: the upper half of a float.
struct Bf16 {
  std::uint16_t bits = 0;
  friend bool operator==(Bf16, Bf16) = default;
};

constexpr float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// FP8 e4m3 (OCP "fn": no infinities, 0x7f and 0xff are NaN, largest 448).
struct F8E4M3 {
  std::uint8_t bits = 0;
  friend bool operator==(F8E4M3, F8E4M3) = default;
};

float to_float(F8E4M3 value);
F8E4M3 to_f8e4m3(float value);  // nearest, ties to even; saturates at +-448; NaN stays NaN

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<Bf16>() {
  return DType::kBf16;
}
template <>
constexpr DType dtype_of<F8E4M3>() {
  return DType::kF8E4M3;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}

}  // namespace rose
