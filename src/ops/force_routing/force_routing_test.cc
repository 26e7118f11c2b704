#include "ops/force_routing/force_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

struct Forced {
  OwnedTensor experts, weights, weights_before;
};

Forced force(RoutingMode mode, int experts, int rows, int k, int layer) {
  Forced forced{OwnedTensor(DType::kI32, {rows, k}), testing::random_tensor(DType::kF32, {rows, k}, 1),
                testing::random_tensor(DType::kF32, {rows, k}, 1)};
  Routing routing{.experts = *forced.experts, .weights = *forced.weights};
  force_routing(Stream::cpu(1), ForcedRouting(mode, experts), layer, routing);
  return forced;
}

std::vector<std::int64_t> counts_of(const Tensor& chosen, int experts) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < chosen.elements(); ++i)
    ++counts.at(static_cast<std::size_t>(chosen.as<std::int32_t>()[i]));
  return counts;
}

struct Sizes {
  int experts, rows, k;
};
// The published ones; one expert; all experts in every row; a number without odd neighbours to be prime to.
constexpr Sizes kSizes[] = {{128, 300, 4}, {32, 1, 4}, {1, 5, 1}, {8, 40, 8}, {6, 100, 2}, {256, 1000, 32}, {4, 0, 2}};

TEST(ForceRouting, EveryRowHasDistinctExpertsAndItsWeights) {
  for (const RoutingMode mode : {RoutingMode::kBalanced, RoutingMode::kSkewed}) {
    for (const auto [experts, rows, k] : kSizes) {
      for (const int layer : {0, 1, 35}) {
        const Forced forced = force(mode, experts, rows, k, layer);
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int32_t* chosen = forced.experts->row<std::int32_t>(row);
          const std::set<std::int32_t> distinct(chosen, chosen + k);
          ASSERT_EQ(distinct.size(), static_cast<std::size_t>(k)) << routing_mode_name(mode) << " row " << row;
          ASSERT_GE(*distinct.begin(), 0);
          ASSERT_LT(*distinct.rbegin(), experts);
        }
        if (rows > 0) {
          EXPECT_EQ(testing::bit_difference(*forced.weights, *forced.weights_before), "");
        }
      }
    }
  }
}

TEST(ForceRouting, BalancedCountsDifferByAtMostOne) {
  for (const auto [experts, rows, k] : kSizes) {
    for (const int layer : {0, 3}) {
      const auto counts = counts_of(*force(RoutingMode::kBalanced, experts, rows, k, layer).experts, experts);
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1) << experts << " experts, " << rows << " rows of " << k;
    }
  }
}

TEST(ForceRouting, BalancedFollowsItsFormula) {
  const ForcedRouting forced(RoutingMode::kBalanced, 128);
  const Forced result = force(RoutingMode::kBalanced, 128, 50, 4, 5);
  const std::int64_t stride = forced.pattern().stride;
  EXPECT_EQ(stride % 2, 1);
  for (std::int64_t row = 0; row < 50; ++row) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(result.experts->row<std::int32_t>(row)[j], (row * 4 + j + 35) * stride % 128);
    }
  }
}

// With one choice a row, draws are independent: counts are binomial (5 deviations).
TEST(ForceRouting, SkewedCountsFollowThePowerLaw) {
  constexpr int kExperts = 128, kRows = 200000;
  double sum = 0;
  for (int rank = 0; rank < kExperts; ++rank) sum += std::pow(rank + 1, -1.2);
  for (const int layer : {0, 9}) {
    auto counts = counts_of(*force(RoutingMode::kSkewed, kExperts, kRows, 1, layer).experts, kExperts);
    const std::int64_t favourite = std::max_element(counts.begin(), counts.end()) - counts.begin();
    EXPECT_EQ(favourite, 7 * layer * ForcedRouting(RoutingMode::kSkewed, kExperts).pattern().stride % kExperts);
    std::sort(counts.rbegin(), counts.rend());
    for (const int rank : {0, 1, 3, 10, 40, 100}) {
      const double expected = kRows * std::pow(rank + 1, -1.2) / sum;
      // Sorting moves a count by at most its neighbours' spread: another 5 deviations.
      EXPECT_NEAR(static_cast<double>(counts[static_cast<std::size_t>(rank)]), expected, 10 * std::sqrt(expected))
          << rank << " in layer " << layer;
    }
  }
}

TEST(ForceRouting, LayersAndRowsAreDrawnApart) {
  const Forced a = force(RoutingMode::kSkewed, 128, 64, 4, 0), b = force(RoutingMode::kSkewed, 128, 64, 4, 1);
  EXPECT_NE(testing::bit_difference(*a.experts, *b.experts), "");
  std::set<std::vector<std::int32_t>> rows;
  for (std::int64_t row = 0; row < 64; ++row) {
    const std::int32_t* chosen = a.experts->row<std::int32_t>(row);
    rows.insert(std::vector<std::int32_t>(chosen, chosen + 4));
  }
  EXPECT_GT(rows.size(), 55u);
}

TEST(ForceRouting, NaturalChangesNothing) {
  const Forced forced = force(RoutingMode::kNatural, 32, 3, 4, 0);
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(forced.experts->as<std::int32_t>()[i], -1);  // the poison
  Routing routing{.experts = *forced.experts, .weights = *forced.weights};
  force_routing(Stream::cpu(1), ForcedRouting(), 3, routing);
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(forced.experts->as<std::int32_t>()[i], -1);
}

TEST(ForceRouting, ModesHaveNames) {
  for (const RoutingMode mode : {RoutingMode::kNatural, RoutingMode::kBalanced, RoutingMode::kSkewed}) {
    EXPECT_EQ(routing_mode_from_name(routing_mode_name(mode)), mode);
  }
  EXPECT_EQ(routing_mode_from_name("fair"), std::nullopt);
}

}  // namespace
}  // namespace rose::ops
