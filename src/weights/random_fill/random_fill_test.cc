#include "weights/random_fill/random_fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tensor/dtype.h"

namespace rose {
namespace {

// The published first outputs of SplitMix64 from seed 1234567.
TEST(RandomFill, HashesAreSplitMix64) {
  EXPECT_EQ(random_hash(1234567, 0), 6457827717110365317ull);
  EXPECT_EQ(random_hash(1234567, 1), 3203168211198807973ull);
  EXPECT_EQ(random_hash(1234567, 2), 9817491932198370423ull);
}

TEST(RandomFill, Bf16ElementsAreTheRoundedProductOfTheHashsTopBits) {
  const RandomRegion region{.key = 5, .scale = 0.3f / 65536, .center = 1000};
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const auto odd = static_cast<double>(random_hash(5, i) >> 48) * 2 - 65535;
    const auto exact = static_cast<float>((1000 + odd) * static_cast<double>(region.scale));
    EXPECT_EQ(random_bf16(region, i), to_bf16(exact).bits) << i;
  }
}

TEST(RandomFill, ARegionTakesItsIndicesAndWritesNothingElse) {
  // Matrices of 7 rows x 10 units; of matrices 1 and 2, rows 2 to 4, units 3 to 8.
  constexpr std::int64_t kRows = 3, kUnits = 6;
  for (const RandomKind kind : {RandomKind::kBf16, RandomKind::kCodes, RandomKind::kScales}) {
    RandomRegion region{.kind = kind, .matrices = 2, .rows = kRows, .units = kUnits, .first = 70 + 2 * 10 + 3};
    region.matrix_stride = 70;
    region.row_stride = 10;
    region.key = 99;
    region.scale = 1.0f / 65536;
    region.exponent = 120;
    const std::size_t unit = kind == RandomKind::kBf16 ? 2 : kind == RandomKind::kCodes ? 16 : 1;
    std::vector<std::uint64_t> memory(2 * kRows * kUnits * 2 + 2, 0xeeeeeeeeeeeeeeeeull);
    region.to = memory.data() + 1;
    random_fill(Stream::cpu(2), region);
    const auto* bytes = reinterpret_cast<const unsigned char*>(memory.data() + 1);
    for (std::int64_t m = 0; m < 2; ++m) {
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t u = 0; u < kUnits; ++u) {
          const auto index = static_cast<std::uint64_t>((1 + m) * 70 + (2 + r) * 10 + 3 + u);
          const unsigned char* at = bytes + static_cast<std::size_t>((m * kRows + r) * kUnits + u) * unit;
          if (kind == RandomKind::kBf16) {
            EXPECT_EQ(at[0] | at[1] << 8, random_bf16(region, index));
          } else if (kind == RandomKind::kScales) {
            EXPECT_EQ(*at, random_scale(region, index));
          } else {
            for (int byte = 0; byte < 16; ++byte) {
              EXPECT_EQ(at[byte], random_codes(region, index, byte / 8) >> (byte % 8 * 8) & 0xff);
            }
          }
        }
      }
    }
    const auto filled = static_cast<std::size_t>(2 * kRows * kUnits) * unit;
    EXPECT_EQ(memory.front(), 0xeeeeeeeeeeeeeeeeull);
    for (std::size_t at = filled; at < (memory.size() - 1) * 8; ++at) EXPECT_EQ(bytes[at], 0xee) << at;
  }
}

TEST(RandomFill, NothingToFillIsNothingToDo) { random_fill(Stream::cpu(1), RandomRegion{.units = 0}); }

}  // namespace
}  // namespace rose
