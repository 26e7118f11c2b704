#include "ops/testing/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/testing/random.h"

namespace rose::ops::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string compare(std::vector<float> got, std::vector<float> want, const Bound& allowed) {
  const auto size = static_cast<std::int64_t>(got.size());
  return difference(Tensor(got.data(), DType::kF32, Device{}, {size}),
                    Tensor(want.data(), DType::kF32, Device{}, {size}), allowed);
}

TEST(Compare, EqualValuesPassWithAZeroBound) { EXPECT_EQ(compare({1, -2, 0}, {1, -2, 0}, bound(0, 0)), ""); }

TEST(Compare, TwoNegativeValuesFarApartFail) {
  EXPECT_NE(compare({-1}, {-100}, bound(0, 0.01)), "");
  EXPECT_NE(compare({-100}, {-1}, bound(0, 0.01)), "");
  EXPECT_EQ(compare({-100}, {-100.5}, bound(0, 0.01)), "");
}

TEST(Compare, OppositeSignsFail) { EXPECT_NE(compare({-1}, {1}, bound(0.1, 0.1)), ""); }

TEST(Compare, TheBoundIsInclusiveAndSharp) {
  EXPECT_EQ(compare({1.5f}, {1}, bound(0.5, 0)), "");
  EXPECT_NE(compare({1.5001f}, {1}, bound(0.5, 0)), "");
}

TEST(Compare, NansMustStandInTheSamePlaces) {
  EXPECT_EQ(compare({kNan, 1}, {kNan, 1}, bound(0, 0)), "");
  EXPECT_NE(compare({kNan, 1}, {1, 1}, bound(1e9, 1)), "");
  EXPECT_NE(compare({1, 1}, {1, kNan}, bound(1e9, 1)), "");
}

TEST(Compare, InfinitiesMustHaveTheSameSign) {
  EXPECT_EQ(compare({kInf, -kInf}, {kInf, -kInf}, bound(0, 0)), "");
  EXPECT_NE(compare({kInf}, {-kInf}, bound(1e9, 1)), "");
  EXPECT_NE(compare({kInf}, {3e38f}, bound(1e30, 1)), "");
  EXPECT_NE(compare({3e38f}, {kInf}, bound(1e30, 1)), "");
}

TEST(Compare, ANanBoundIsNeverAPass) { EXPECT_NE(compare({1}, {1}, bound(std::nan(""), 0)), ""); }

TEST(Compare, ReportsCountAndWorstElement) {
  std::vector<float> got = {0, 0.2f, 0, -7, 0, 0};
  std::vector<float> want(6, 0);
  const std::string report = difference(Tensor(got.data(), DType::kF32, Device{}, {2, 3}),
                                        Tensor(want.data(), DType::kF32, Device{}, {2, 3}), bound(0.1, 0));
  EXPECT_THAT(report, HasSubstr("2 of 6"));
  EXPECT_THAT(report, HasSubstr("[1, 0]"));
  EXPECT_THAT(report, HasSubstr("-7"));
}

TEST(Compare, BitsTellZerosApart) {
  float a = 0.0f;
  float b = -0.0f;
  const Tensor one(&a, DType::kF32, Device{}, {1});
  const Tensor other(&b, DType::kF32, Device{}, {1});
  EXPECT_EQ(bit_difference(one, one), "");
  EXPECT_NE(bit_difference(one, other), "");
}

}  // namespace
}  // namespace rose::ops::testing
