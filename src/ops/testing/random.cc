#include "ops/testing/random.h"

#include <cmath>

namespace rose::ops::testing {
namespace {

OwnedTensor stacked(DType dtype, std::int64_t experts, std::int64_t rows, std::int64_t columns) {
  return experts > 0 ? OwnedTensor(dtype, {experts, rows, columns}) : OwnedTensor(dtype, {rows, columns});
}

std::int64_t tiles(std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; }

}  // namespace

OwnedWeight random_weight(WeightFormat format, const WeightShape& shape, std::uint64_t seed) {
  const auto [experts, out, in, bias] = shape;
  OwnedWeight owned;
  switch (format) {
    case WeightFormat::kBf16:
      owned.payload = stacked(DType::kBf16, experts, out, in);
      break;
    case WeightFormat::kFp8:
      owned.payload = stacked(DType::kF8E4M3, experts, out, in);
      owned.scales = stacked(DType::kF32, experts, tiles(out), tiles(in));
      break;
    case WeightFormat::kMxfp4:
      owned.payload = stacked(DType::kU8, experts, out, in / 2);
      owned.scales = stacked(DType::kU8, experts, out, in / kMxfp4Group);
      break;
  }
  for (std::int64_t i = 0; i < owned.payload->elements(); ++i) {
    const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(i));
    if (format == WeightFormat::kBf16) {
      owned.payload->as<Bf16>()[i] = to_bf16(random_value(seed, static_cast<std::uint64_t>(i), 1));
    } else {
      auto code = static_cast<std::uint8_t>(bits >> 40);
      if (format == WeightFormat::kFp8 && (code & 0x7f) == 0x7f) code ^= 1;  // NaN
      static_cast<std::uint8_t*>(owned.payload->raw())[i] = code;
    }
  }
  for (std::int64_t i = 0; !owned.scales->empty() && i < owned.scales->elements(); ++i) {
    const int exponent = static_cast<int>(random_bits(seed + 1, static_cast<std::uint64_t>(i)) % 10) - 8;
    if (format == WeightFormat::kFp8) {
      owned.scales->as<float>()[i] = std::ldexp(1.0f, exponent);
    } else {
      owned.scales->as<std::uint8_t>()[i] = static_cast<std::uint8_t>(127 + exponent);
    }
  }
  if (bias && experts > 0) owned.bias = random_tensor(DType::kBf16, {experts, out}, seed + 2);
  if (bias && experts == 0) owned.bias = random_tensor(DType::kBf16, {out}, seed + 2);
  owned.weight = {format, experts, out, in, *owned.payload, *owned.scales, *owned.bias};
  return owned;
}

}  // namespace rose::ops::testing
