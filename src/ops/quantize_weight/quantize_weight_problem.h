// Matrices for the tests of quantize_weight: every tile of another size, from e4m3's scales at their least to bf16's
// largest numbers, zeros of both signs, and tiles of zeros alone.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/testing/random.h"

namespace rose::ops::quantize_weight_problem {

inline testing::OwnedWeight stored_weight(std::int64_t out, std::int64_t in, std::uint64_t seed) {
  testing::OwnedWeight made = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in, .bias = false}, seed);
  for (std::int64_t i = 0; i < out * in; ++i) {
    const std::int64_t tile = i / in / kFp8Tile * 7 + i % in / kFp8Tile;
    const int exponents[] = {0, -130, 120, -6, -112, 3, 40};
    const auto value = static_cast<float>(testing::element(*made.payload, i));
    const bool zero = tile % 5 == 4 || i % 11 == 3;
    const float size = zero ? 0.0f : std::ldexp(1.0f, static_cast<int>(i % 13) - 6);  // within a tile too
    testing::set_element(*made.payload, i, std::ldexp(value * size, exponents[tile % 7]));
  }
  return made;
}

// Every byte 0xff.
inline testing::OwnedWeight fp8_weight(std::int64_t out, std::int64_t in) {
  const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
  testing::OwnedWeight made;
  made.payload = testing::OwnedTensor(DType::kF8E4M3, {out, in});
  made.scales = testing::OwnedTensor(DType::kF32, {tiles(out), tiles(in)});
  made.weight.format = WeightFormat::kFp8;
  made.weight.out = out;
  made.weight.in = in;
  made.weight.payload = *made.payload;
  made.weight.scales = *made.scales;
  return made;
}

}  // namespace rose::ops::quantize_weight_problem
