// Weights of one row as vectors of floats, by format: group g (32 inputs) is kGroupVectors vectors, in the order that
// pack_row gives to the inputs. All decodes are exact. Included once per Highway target.
#include "hwy/highway.h"

// clang-format off
#if defined(ROSE_OPS_LINEAR_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROSE_OPS_LINEAR_DECODE_INL_H_
#undef ROSE_OPS_LINEAR_DECODE_INL_H_
#else
#define ROSE_OPS_LINEAR_DECODE_INL_H_
#endif
// clang-format on

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "ops/linear/linear_x86.h"

HWY_BEFORE_NAMESPACE();
namespace rose::ops::x86::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());
constexpr int kGroupVectors = static_cast<int>(kGroup / static_cast<std::int64_t>(kLanes));
static_assert(kLanes <= 16);

// Already floats.
struct FloatRow {
  const float* weights = nullptr;

  const std::uint8_t* bytes(std::int64_t g) const {
    return reinterpret_cast<const std::uint8_t*>(weights + g * kGroup);
  }
  HWY_INLINE V decode(std::int64_t g, int v) const {
    return hn::Load(D(), weights + g * kGroup + v * static_cast<int>(kLanes));
  }
};

struct Bf16Row {
  const std::uint16_t* weights = nullptr;

  static Bf16Row of(const Weight& weight, std::int64_t expert, std::int64_t row) {
    return {static_cast<const std::uint16_t*>(weight.payload.raw()) + (expert * weight.out + row) * weight.in};
  }
  Bf16Row advanced(std::int64_t groups) const { return {weights + groups * kGroup}; }
  Bf16Row tail(std::int64_t in, std::uint8_t* padded) const {
    const std::int64_t whole = in / kGroup * kGroup;
    std::memset(padded, 0, kGroup * 2);
    std::memcpy(padded, weights + whole, static_cast<std::size_t>(in - whole) * 2);
    return {reinterpret_cast<const std::uint16_t*>(padded)};
  }

  static std::int64_t row_bytes(const Weight& weight) { return weight.in * 2; }
  const std::uint8_t* bytes(std::int64_t g) const {
    return reinterpret_cast<const std::uint8_t*>(weights + g * kGroup);
  }
  HWY_INLINE V decode(std::int64_t g, int v) const {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, weights + g * kGroup + v * static_cast<int>(kLanes)));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
};

// e4m3: sign, exponent and mantissa move to where a float has them; 2^120 makes up for the difference of the biases,
// and makes subnormals right too.
struct Fp8Row {
  const std::uint8_t* weights = nullptr;
  const float* scales = nullptr;  // one per kFp8Tile inputs

  static Fp8Row of(const Weight& weight, std::int64_t expert, std::int64_t row) {
    const std::int64_t tiles = (weight.in + kFp8Tile - 1) / kFp8Tile;
    const std::int64_t tile_rows = (weight.out + kFp8Tile - 1) / kFp8Tile;
    return {static_cast<const std::uint8_t*>(weight.payload.raw()) + (expert * weight.out + row) * weight.in,
            static_cast<const float*>(weight.scales.raw()) + (expert * tile_rows + row / kFp8Tile) * tiles};
  }
  Fp8Row advanced(std::int64_t groups) const {
    return {weights + groups * kGroup, scales + groups * kGroup / kFp8Tile};
  }
  Fp8Row tail(std::int64_t in, std::uint8_t* padded) const {
    const std::int64_t whole = in / kGroup * kGroup;
    std::memset(padded, 0, kGroup);
    std::memcpy(padded, weights + whole, static_cast<std::size_t>(in - whole));
    return {padded, scales + whole / kFp8Tile};
  }

  static std::int64_t row_bytes(const Weight& weight) { return weight.in; }
  const std::uint8_t* bytes(std::int64_t g) const { return weights + g * kGroup; }
  HWY_INLINE V decode(std::int64_t g, int v) const {
    const D d;
    const hn::Rebind<std::uint8_t, D> d8;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d8, weights + g * kGroup + v * static_cast<int>(kLanes)));
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fu));
    const auto sign = hn::ShiftLeft<24>(hn::Xor(bits, magnitude));
    const V value = hn::Mul(hn::BitCast(d, hn::Or(hn::ShiftLeft<20>(magnitude), sign)), hn::Set(d, 0x1p120f));
    const V nan = hn::BitCast(d, hn::Set(d32, 0x7fc00000u));
    const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(d32, 0x7fu)));
    return hn::Mul(hn::IfThenElse(is_nan, nan, value), hn::Set(d, scales[g * kGroup / kFp8Tile]));
  }
};

inline constexpr std::array<float, 256> kE8m0 = [] {
  std::array<float, 256> scales{};
  scales[0] = 0x1p-127f;
  for (std::uint32_t code = 1; code < 256; ++code) scales[code] = std::bit_cast<float>(code << 23);
  return scales;
}();

alignas(64) inline constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

struct Mxfp4Row {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;

  static Mxfp4Row of(const Weight& weight, std::int64_t expert, std::int64_t row) {
    const std::int64_t index = expert * weight.out + row;
    return {static_cast<const std::uint8_t*>(weight.payload.raw()) + index * (weight.in / 2),
            static_cast<const std::uint8_t*>(weight.scales.raw()) + index * (weight.in / kMxfp4Group)};
  }
  Mxfp4Row advanced(std::int64_t groups) const { return {codes + groups * kGroup / 2, scales + groups}; }
  Mxfp4Row tail(std::int64_t, std::uint8_t*) const { return *this; }  // rows are whole groups

  static std::int64_t row_bytes(const Weight& weight) { return weight.in / 2; }
  const std::uint8_t* bytes(std::int64_t g) const { return codes + g * kGroup / 2; }

  // Vector v holds the low nibbles (v < kGroupVectors / 2) or the high ones of kLanes bytes.
  HWY_INLINE V decode(std::int64_t g, int v) const {
    const D d;
    const int half = kGroupVectors / 2;
    const std::uint8_t* from = bytes(g) + v % half * static_cast<int>(kLanes);
    const V scale = hn::Set(d, kE8m0[scales[g]]);
#if HWY_TARGET <= HWY_AVX3
    // Sixteen codes, sixteen lanes: one permutation of the scaled table by the codes.
    const hn::Rebind<std::uint8_t, D> d8;
    const hn::RebindToUnsigned<D> d32;
    const auto words = hn::PromoteTo(d32, hn::LoadU(d8, from));
    // The permutation looks at the lowest four bits of an index alone, so the low nibble needs no mask (IndicesFromVec
    // would want one).
    const hn::Indices512<float> code{(v < half ? words : hn::ShiftRight<4>(words)).raw};
    return hn::TableLookupLanes(hn::Mul(hn::Load(d, kE2m1), scale), code);
#elif HWY_TARGET == HWY_SCALAR
    return hn::Mul(hn::Set(d, kE2m1[v < half ? *from & 15 : *from >> 4]), scale);
#else
    // Twice the value fits a signed byte.
    alignas(16) static constexpr std::int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const hn::Full128<std::uint8_t> d128;
    const hn::Rebind<std::int8_t, D> di8;
    const hn::RebindToSigned<D> di32;
    alignas(16) std::uint8_t lanes[16] = {};
    std::memcpy(lanes, from, kLanes);
    const auto packed = hn::Load(d128, lanes);
    const auto code = v < half ? hn::And(packed, hn::Set(d128, 15)) : hn::ShiftRight<4>(packed);
    const auto table = hn::Load(d128, reinterpret_cast<const std::uint8_t*>(kDoubled));
    hn::Store(hn::TableLookupBytes(table, code), d128, lanes);
    const auto doubled = hn::PromoteTo(di32, hn::LoadU(di8, reinterpret_cast<const std::int8_t*>(lanes)));
    return hn::Mul(hn::ConvertTo(d, doubled), hn::Mul(scale, hn::Set(d, 0.5f)));
#endif
  }
};

}  // namespace rose::ops::x86::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
