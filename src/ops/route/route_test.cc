#include "ops/route/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;

struct Routes {
  OwnedTensor experts, weights;
  Routing routing;

  Routes(std::int64_t rows, std::int64_t per_token) {
    experts = OwnedTensor(DType::kI32, {rows, per_token});
    weights = OwnedTensor(DType::kF32, {rows, per_token});
    routing = {*experts, *weights};
  }
  std::vector<std::int32_t> ids(std::int64_t row) const {
    const auto* begin = experts->row<std::int32_t>(row);
    return {begin, begin + experts->size(1)};
  }
};

// Routes rows of given logits: the router is the identity.
Routes route_logits(const std::vector<std::vector<float>>& logits, std::int64_t per_token) {
  const auto experts = static_cast<std::int64_t>(logits[0].size());
  const OwnedWeight router =
      testing::random_weight(WeightFormat::kBf16, {.out = experts, .in = experts, .bias = false}, 0);
  for (std::int64_t i = 0; i < experts * experts; ++i) {
    router.payload->as<Bf16>()[i] = to_bf16(i % (experts + 1) == 0 ? 1.0f : 0.0f);
  }
  const OwnedTensor x(DType::kF32, {static_cast<std::int64_t>(logits.size()), experts});
  for (std::size_t r = 0; r < logits.size(); ++r) {
    std::copy(logits[r].begin(), logits[r].end(), x->row<float>(static_cast<std::int64_t>(r)));
  }
  Routes routes(x->size(0), per_token);
  route(Stream::cpu(2), *x, *router, routes.routing);
  return routes;
}

using Ids = std::vector<std::int32_t>;

TEST(Route, TakesTheLargestInFallingOrder) { EXPECT_EQ(route_logits({{1, 5, -2, 3, 4}}, 3).ids(0), (Ids{1, 4, 3})); }

TEST(Route, TiesGoToTheLowestIndex) {
  EXPECT_EQ(route_logits({{2, 2, 2, 2, 2}}, 3).ids(0), (Ids{0, 1, 2}));
  EXPECT_EQ(route_logits({{1, 3, 3, 1, 3}}, 4).ids(0), (Ids{1, 2, 4, 0}));
}

TEST(Route, WeightsAreSoftmaxOverTheChosenAlone) {
  const Routes routes = route_logits({{0, std::log(2.0f), -9, std::log(5.0f)}}, 3);
  EXPECT_EQ(routes.ids(0), (Ids{3, 1, 0}));
  EXPECT_NEAR(routes.weights->as<float>()[0], 5.0f / 8, 1e-7);
  EXPECT_NEAR(routes.weights->as<float>()[1], 2.0f / 8, 1e-7);
  EXPECT_NEAR(routes.weights->as<float>()[2], 1.0f / 8, 1e-7);
}

TEST(Route, LargeLogitsDoNotOverflow) {
  const Routes routes = route_logits({{1000, 999, -1000, 1000}}, 4);
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += routes.weights->as<float>()[k];
  EXPECT_NEAR(sum, 1.0f, 1e-6);
  EXPECT_EQ(routes.weights->as<float>()[3], 0.0f);
}

TEST(Route, TheBiasTakesPartInChoiceAndWeight) {
  const OwnedWeight router = testing::random_weight(WeightFormat::kBf16, {.out = 4, .in = 8}, 1);
  for (int e = 0; e < 4; ++e) router.bias->as<Bf16>()[e] = to_bf16(static_cast<float>(e) * 100);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {1, 8}, 2, 0.01f);
  Routes routes(1, 2);
  route(Stream::cpu(1), *x, *router, routes.routing);
  EXPECT_EQ(routes.ids(0), (Ids{3, 2}));
}

// No NaN may end in an index that does not exist, nor be hidden by a finite weight.
TEST(Route, NansGiveValidDistinctExpertsAndNanWeights) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const OwnedTensor logits(DType::kF32, {3, 6});
  const float rows[3][6] = {{kNan, kNan, kNan, kNan, kNan, kNan}, {1, 2, kNan, 4, 5, 6}, {1, 2, 3, 4, 5, 6}};
  std::copy_n(&rows[0][0], 18, logits->as<float>());
  Routes routes(3, 4);
  ref::choose_experts(Stream::cpu(1), *logits, routes.routing);
  for (std::int64_t r = 0; r < 3; ++r) {
    const Ids ids = routes.ids(r);
    EXPECT_EQ(std::set<std::int32_t>(ids.begin(), ids.end()).size(), 4u);
    for (const std::int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 6) << id;
    EXPECT_EQ(std::isnan(routes.weights->row<float>(r)[0]), r < 2) << r;
  }
}

TEST(Route, MatchesAFullSortOfReferenceLogits) {
  const std::int64_t rows = 50, hidden = 320, experts = 32;
  const OwnedWeight router = testing::random_weight(WeightFormat::kBf16, {.out = experts, .in = hidden}, 3);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {rows, hidden}, 4);
  Routes got(rows, 4);
  Routes want(rows, 4);
  route(Stream::cpu(2), *x, *router, got.routing);
  ref::route(Stream::cpu(1), *x, *router, want.routing);
  std::vector<float> w(static_cast<std::size_t>(hidden));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<double> logits;
    for (std::int64_t e = 0; e < experts; ++e) {
      decode_row(*router, 0, e, w.data());
      double sum = static_cast<double>(to_float(router.bias->as<Bf16>()[e]));
      for (std::int64_t i = 0; i < hidden; ++i)
        sum += static_cast<double>(w[static_cast<std::size_t>(i)]) * testing::element(*x, r * hidden + i);
      logits.push_back(sum);
    }
    Ids order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    order.resize(4);
    EXPECT_EQ(got.ids(r), order) << r;
    EXPECT_EQ(want.ids(r), order) << r;
  }
  // Logits err by n eps sum |w x| < 320 * 6e-8 * 160, a weight by twice that.
  EXPECT_EQ(testing::difference(*got.weights, *want.weights, testing::bound(0, 6.2e-3)), "");
}

TEST(Route, NoRowsIsNothingToDo) {
  const OwnedWeight router = testing::random_weight(WeightFormat::kBf16, {.out = 4, .in = 8}, 1);
  Routes routes(0, 2);
  route(Stream::cpu(1), Tensor(nullptr, DType::kF32, Device{}, {0, 8}), *router, routes.routing);
}

}  // namespace
}  // namespace rose::ops
