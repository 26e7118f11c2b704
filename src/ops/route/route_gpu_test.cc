// Routing on the GPU: the logits against f64 with a derived bound, the choice among given logits exactly, and both
// together against the reference where the k-th and the next logit lie further apart than rounding can move them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "ops/route/route_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

struct OwnedRouting {
  OwnedRouting(std::int64_t rows, std::int64_t k) : experts(DType::kI32, {rows, k}), weights(DType::kF32, {rows, k}) {}
  Routing routing() const { return {*experts, *weights}; }
  OwnedTensor experts, weights;
};

// Equal ids. Weights: exp(d) with d the distance to the largest, itself rounded at 2^-24 |d|, and off by 2 units in the
// last place; then at most 32 additions and a division.
void expect_choice(const OwnedRouting& got, const OwnedRouting& want, const Tensor& logits) {
  const std::int64_t k = got.experts->size(1);
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    const auto* ids = want.experts->row<std::int32_t>(row);
    const double largest = static_cast<double>(logits.row<float>(row)[ids[0]]);
    const double farthest = largest - static_cast<double>(logits.row<float>(row)[ids[k - 1]]);
    for (std::int64_t j = 0; j < k; ++j) {
      ASSERT_EQ(got.experts->row<std::int32_t>(row)[j], ids[j]) << "row " << row << ", place " << j;
      const double a = static_cast<double>(got.weights->row<float>(row)[j]);
      const double b = static_cast<double>(want.weights->row<float>(row)[j]);
      if (std::isnan(b)) {
        ASSERT_TRUE(std::isnan(a)) << "row " << row << ", place " << j << ": " << a;
      } else {
        ASSERT_NEAR(a, b, b * (2 * std::min(farthest, 200.0) + 50) * std::exp2(-24) + 1e-37)
            << "row " << row << ", place " << j;
      }
    }
  }
}

OwnedRouting choose_on(testing::Gpu& gpu, const Tensor& logits, std::int64_t k) {
  OwnedRouting got(logits.size(0), k);
  Routing routing{gpu.like(*got.experts), gpu.like(*got.weights)};
  cuda::choose_experts(gpu.stream, gpu.upload(logits), routing);
  gpu.download(routing.experts, *got.experts);
  gpu.download(routing.weights, *got.weights);
  return got;
}

struct Choice {
  int rows, experts, k;
};
class ChooseExpertsGpu : public ::testing::TestWithParam<Choice> {};

// Values from a small set, so that ties are everywhere, with NaNs, infinities and both zeros among them.
TEST_P(ChooseExpertsGpu, EqualsTheReferenceOnTiesNansAndInfinities) {
  const auto [rows, experts, k] = GetParam();
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0.f, -0.f, 1.f, 1.f, -3.f, 2.5f, -90.f, 88.f, -kInf, kInf, kNan, -kNan};
  const OwnedTensor logits(DType::kF32, {rows, experts});
  for (std::int64_t i = 0; i < logits->elements(); ++i) {
    // Rows take turns: plain ties, then infinities too, then NaNs too.
    const std::uint64_t kinds = i / experts % 3 == 0 ? 8 : i / experts % 3 == 1 ? 10 : 12;
    logits->as<float>()[i] = values[random_bits(7, static_cast<std::uint64_t>(i)) % kinds];
  }
  OwnedRouting want(rows, k);
  Routing routing = want.routing();
  ref::choose_experts(Stream::cpu(1), *logits, routing);
  testing::Gpu gpu;
  expect_choice(choose_on(gpu, *logits, k), want, *logits);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ChooseExpertsGpu,
                         ::testing::Values(Choice{1, 32, 4}, Choice{9, 128, 4}, Choice{300, 128, 8}, Choice{64, 5, 5},
                                           Choice{7, 1, 1}, Choice{50, 256, 8}, Choice{50, 100, 32}),
                         [](const auto& info) {
                           const Choice& c = info.param;
                           return std::to_string(c.rows) + "rows_" + std::to_string(c.k) + "of" +
                                  std::to_string(c.experts);
                         });

TEST(RouteGpu, NansGiveValidDistinctExpertsAndNanWeights) {
  const OwnedTensor logits(DType::kF32, {2, 128});  // all NaN
  for (int e = 0; e < 128; ++e) logits->row<float>(1)[e] = e == 77 ? NAN : static_cast<float>(e);
  testing::Gpu gpu;
  const OwnedRouting got = choose_on(gpu, *logits, 4);
  for (int row = 0; row < 2; ++row) {
    const auto* ids = got.experts->row<std::int32_t>(row);
    EXPECT_EQ(std::set<std::int32_t>(ids, ids + 4).size(), 4u);
    for (int j = 0; j < 4; ++j) {
      EXPECT_TRUE(ids[j] >= 0 && ids[j] < 128) << ids[j];
      EXPECT_TRUE(std::isnan(got.weights->row<float>(row)[j])) << "row " << row << ", place " << j;
    }
  }
}

struct Case {
  int rows, experts, in, k;
  bool bias;
};
class RouteRandomGpu : public ::testing::TestWithParam<Case> {};

// Per logit, with S = sum |x w| + |bias|: a tensor-core product of 16 adds 17 terms, each cut at 2^-24 of the largest
// at worst twice, and rounds once; then eight parts and the bias are added.
struct ExactLogits {
  std::vector<double> values, bounds;
};
ExactLogits exact_logits(const Tensor& x, const Weight& router) {
  ExactLogits exact;
  std::vector<float> w(static_cast<std::size_t>(router.out * router.in)), row(static_cast<std::size_t>(router.in));
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<float>(testing::element(router.payload, static_cast<std::int64_t>(i)));
  }
  const double steps = std::ceil(static_cast<double>(router.in) / 512);  // up to 64 rows: eight parts side by side
  const double terms = steps * (x.size(0) <= 64 ? 4 : 32) * 36 + 10;
  for (std::int64_t r = 0; r < x.size(0); ++r) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(testing::element(x, r * router.in + static_cast<std::int64_t>(i)));
    }
    for (std::int64_t e = 0; e < router.out; ++e) {
      double sum = router.bias.empty() ? 0 : testing::element(router.bias, e), sizes = std::fabs(sum);
      const float* weight = w.data() + e * router.in;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double product = static_cast<double>(row[i]) * static_cast<double>(weight[i]);
        sum += product, sizes += std::fabs(product);
      }
      exact.values.push_back(sum);
      exact.bounds.push_back(sizes * terms * std::exp2(-24));
    }
  }
  return exact;
}

// Rows whose k-th and next logit lie far enough apart must have the k largest; returns how many those are.
int expect_largest(const OwnedRouting& got, const ExactLogits& exact, std::int64_t experts) {
  const std::int64_t rows = got.experts->size(0), k = got.experts->size(1);
  int compared = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* logits = exact.values.data() + row * experts;
    const double* bounds = exact.bounds.data() + row * experts;
    std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
    for (std::int32_t e = 0; e < experts; ++e) order[static_cast<std::size_t>(e)] = e;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    if (k < experts) {
      const std::int32_t last = order[static_cast<std::size_t>(k - 1)], next = order[static_cast<std::size_t>(k)];
      const double bound = *std::max_element(bounds, bounds + experts);
      if (logits[last] - logits[next] <= 2 * bound) continue;
    }
    ++compared;
    const auto* ids = got.experts->row<std::int32_t>(row);
    EXPECT_EQ(std::set<std::int32_t>(ids, ids + k), std::set<std::int32_t>(order.begin(), order.begin() + k)) << row;
  }
  return compared;
}

TEST_P(RouteRandomGpu, LogitsAreWithinBoundsAndTheLargestAreChosen) {
  const auto [rows, experts, in, k, bias] = GetParam();
  const auto x = testing::random_tensor(DType::kBf16, {rows, in}, 11);
  const auto router = testing::random_weight(WeightFormat::kBf16, {.out = experts, .in = in, .bias = bias}, 12);
  const OwnedTensor logits(DType::kF32, {rows, experts});
  OwnedRouting got(rows, k), want(rows, k);
  testing::Gpu gpu;
  const Tensor scratch = gpu.like(*logits);
  ASSERT_EQ(cuda::route_scratch_bytes(rows, experts), scratch.bytes());
  Routing on_gpu{gpu.like(*got.experts), gpu.like(*got.weights)};
  cuda::route(gpu.stream, gpu.upload(*x), gpu.upload(*router), on_gpu, scratch.raw());
  gpu.download(scratch, *logits);
  gpu.download(on_gpu.experts, *got.experts);
  gpu.download(on_gpu.weights, *got.weights);

  const ExactLogits exact = exact_logits(*x, *router);
  for (std::int64_t i = 0; i < logits->elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_NEAR(testing::element(*logits, i), exact.values[at], exact.bounds[at])
        << "row " << i / experts << ", expert " << i % experts;
  }
  Routing routing = want.routing();
  ref::choose_experts(Stream::cpu(1), *logits, routing);
  expect_choice(got, want, *logits);
  const int compared = expect_largest(got, exact, experts);
  if (rows >= 8) {  // the comparison must not pass by skipping
    EXPECT_GE(2 * compared, rows);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RouteRandomGpu,
    ::testing::Values(Case{1, 32, 320, 4, true}, Case{1, 128, 2880, 4, true}, Case{8, 128, 320, 4, true},
                      Case{33, 128, 256, 8, true}, Case{64, 32, 320, 4, true}, Case{100, 256, 520, 8, true},
                      Case{65, 128, 320, 4, true}, Case{130, 33, 72, 4, false}, Case{129, 20, 8, 3, true},
                      Case{500, 32, 200, 4, true}, Case{1024, 64, 136, 4, true}, Case{1025, 32, 136, 4, true},
                      Case{1000, 128, 520, 4, true}, Case{128, 64, 2880, 4, true}, Case{2100, 36, 24, 4, true},
                      Case{4300, 128, 72, 4, true},  // tiles of all experts
                      Case{4289, 140, 24, 4, false}),
    [](const auto& info) {
      const Case& c = info.param;
      return std::to_string(c.rows) + "x" + std::to_string(c.experts) + "x" + std::to_string(c.in) + "_top" +
             std::to_string(c.k);
    });

TEST(RouteGpu, NoRowsIsNothingToDo) {
  const auto router = testing::random_weight(WeightFormat::kBf16, {.out = 32, .in = 64}, 1);
  testing::Gpu gpu;
  const OwnedTensor experts(DType::kI32, {0, 4}), weights(DType::kF32, {0, 4}), x(DType::kBf16, {0, 64});
  Routing routing{gpu.like(*experts), gpu.like(*weights)};
  cuda::route(gpu.stream, gpu.like(*x), gpu.upload(*router), routing, nullptr);
  gpu.stream.synchronize();
}

}  // namespace
}  // namespace rose::ops
