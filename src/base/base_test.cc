#include <gtest/gtest.h>

#include <set>

#include "base/check.h"
#include "base/random.h"
#include "base/result.h"

namespace rose {
namespace {

TEST(CheckDeathTest, ShowsConditionAndValues) {
  const int rows = 3;
  CHECK(rows == 3);
  EXPECT_DEATH(CHECK(rows < 3, "{} rows", rows), "CHECK\\(rows < 3\\) failed: 3 rows");
}

TEST(Result, HoldsAValueOrTheErrorText) {
  const Result<int> good = 7;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  const Result<int> bad = RequestError{400, "max_tokens must be 1 or more", "max_tokens"};
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().param, "max_tokens");
}

TEST(ResultDeathTest, ReadingAnErrorAsAValueStops) {
  const Result<int> bad = RequestError{400, "no such model"};
  EXPECT_DEATH(bad.value(), "no such model");
}

TEST(Random, IsUniformAndDependsOnSeedAndCounter) {
  double sum = 0;
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = random_unit(42, i);
    ASSERT_GE(u, 0.f);
    ASSERT_LT(u, 1.f);
    sum += u;
    seen.insert(random_bits(42, i));
    seen.insert(random_bits(i + 1000, 7));
  }
  EXPECT_NEAR(sum / 10000, 0.5, 5 * 0.2887 / 100);  // five standard errors of a uniform mean
  EXPECT_EQ(seen.size(), 20000u);
  EXPECT_EQ(random_bits(1, 2), random_bits(1, 2));
}

}  // namespace
}  // namespace rose
