#include "ops/quantize_weight/quantize_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/quantize_weight/quantize_weight_problem.h"
#include "ops/testing/compare.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;
using namespace quantize_weight_problem;

// The scale by search, and half a step of e4m3 (2^-4 of a value, 2^-10 of the scale where values are subnormal).
void expect_nearest(const Weight& from, const Weight& to) {
  std::vector<float> want(static_cast<std::size_t>(from.in)), got(want.size());
  const std::int64_t tile_columns = to.scales.size(1);
  std::vector<double> largest(static_cast<std::size_t>(to.scales.elements()));
  for (std::int64_t row = 0; row < from.out; ++row) {
    decode_row(from, 0, row, want.data());
    decode_row(to, 0, row, got.data());
    for (std::int64_t c = 0; c < from.in; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const std::int64_t tile = row / kFp8Tile * tile_columns + c / kFp8Tile;
      const double scale = to.scales.as<float>()[tile], value = want[at];
      largest[static_cast<std::size_t>(tile)] = std::max(largest[static_cast<std::size_t>(tile)], std::fabs(value));
      ASSERT_LE(std::fabs(got[at] - value), std::max(std::fabs(value) * std::exp2(-4), scale * std::exp2(-10)))
          << "row " << row << ", column " << c << ": " << got[at] << ", not " << value;
    }
  }
  for (std::size_t tile = 0; tile < largest.size(); ++tile) {
    int exponent = -126;
    while (largest[tile] > std::ldexp(448.0, exponent)) ++exponent;
    if (largest[tile] == 0) exponent = 0;
    EXPECT_EQ(to.scales.as<float>()[tile], std::ldexp(1.0f, exponent)) << "tile " << tile << ": " << largest[tile];
  }
}

TEST(QuantizeWeight, EveryValueIsNearestUnderTheSmallestScale) {
  for (const auto& [out, in] : {std::pair{1, 8}, {3, 136}, {128, 128}, {130, 40}, {257, 129}, {300, 1000}}) {
    const OwnedWeight from = stored_weight(out, in, 1), to = fp8_weight(out, in), again = fp8_weight(out, in);
    const OwnedTensor not_finite = testing::int_tensor({5});
    quantize_weight(Stream::cpu(3), *from, *to, *not_finite);
    expect_nearest(*from, *to);
    quantize_weight(Stream::cpu(1), *from, *again, *not_finite);
    EXPECT_EQ(testing::bit_difference(*to.payload, *again.payload), "");
    EXPECT_EQ(testing::bit_difference(*to.scales, *again.scales), "");
    EXPECT_EQ(*not_finite->as<std::int32_t>(), 5);
  }
}

TEST(QuantizeWeight, CountsWhatIsNotFinite) {
  const OwnedWeight from = stored_weight(300, 200, 2), to = fp8_weight(300, 200);
  testing::set_element(*from.payload, 0, std::numeric_limits<float>::infinity());
  testing::set_element(*from.payload, 131 * 200 + 7, -std::numeric_limits<float>::infinity());
  testing::set_element(*from.payload, 299 * 200 + 199, std::numeric_limits<float>::quiet_NaN());
  const OwnedTensor not_finite = testing::int_tensor({0});
  quantize_weight(Stream::cpu(2), *from, *to, *not_finite);
  EXPECT_EQ(*not_finite->as<std::int32_t>(), 3);
}

TEST(QuantizeWeightDeathTest, ShapesMustBeEqual) {
  const OwnedWeight from = stored_weight(4, 16, 1), to = fp8_weight(5, 16);
  EXPECT_DEATH(quantize_weight(Stream::cpu(1), *from, *to, *testing::int_tensor({0})), "quantize_weight");
}

}  // namespace
}  // namespace rose::ops
