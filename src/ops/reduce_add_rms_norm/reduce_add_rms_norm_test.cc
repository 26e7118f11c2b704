#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

OwnedTensor ones(std::int64_t hidden) {
  OwnedTensor weight(DType::kBf16, {hidden});
  for (std::int64_t i = 0; i < hidden; ++i) weight->as<Bf16>()[i] = to_bf16(1);
  return weight;
}

struct Case {
  std::string name;
  std::int64_t rows, hidden;
};

class RmsNorm : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(Case{"no_rows", 0, 64}, Case{"one_element", 2, 1},
                                           Case{"hidden_of_20b", 9, 2880}, Case{"odd_width", 3, 2881}),
                         [](const auto& c) { return c.param.name; });

TEST_P(RmsNorm, EveryRowHasUnitMeanSquare) {
  const auto& [name, rows, hidden] = GetParam();
  const OwnedTensor residual = testing::random_tensor(DType::kF32, {rows, hidden}, 1, 5);
  const OwnedTensor out(DType::kF32, {rows, hidden});
  reduce_add_rms_norm(Stream::cpu(2), *make_solo_communicator(), Tensor(), *residual, *ones(hidden), 0, *out);
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t h = 0; h < hidden; ++h) sum += std::pow(testing::element(*out, r * hidden + h), 2);
    // Three roundings an element (scale, two products), squared: 6 half ulps.
    EXPECT_NEAR(sum / static_cast<double>(hidden), 1, 6 * std::ldexp(1.0, -24)) << r;
  }
}

TEST_P(RmsNorm, MatchesTheFormulaWithDeltaWeightAndEpsilon) {
  const auto& [name, rows, hidden] = GetParam();
  const float epsilon = 0.25f;  // large, so that a misplaced one shows
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const OwnedTensor delta = testing::random_tensor(dtype, {rows, hidden}, 2);
    const OwnedTensor residual = testing::random_tensor(dtype, {rows, hidden}, 3);
    const OwnedTensor weight = testing::random_tensor(DType::kBf16, {hidden}, 4, 2);
    OwnedTensor sum(dtype, {rows, hidden});
    OwnedTensor want(DType::kF32, {rows, hidden});
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::int64_t i = r * hidden; i < (r + 1) * hidden; ++i) {
        testing::set_element(*sum, i, static_cast<float>(testing::element(*residual, i) + testing::element(*delta, i)));
        squares += std::pow(testing::element(*sum, i), 2);
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(epsilon));
      for (std::int64_t h = 0; h < hidden; ++h) {
        want->row<float>(r)[h] =
            static_cast<float>(testing::element(*sum, r * hidden + h) * scale * testing::element(*weight, h));
      }
    }
    const OwnedTensor out(dtype, {rows, hidden});
    reduce_add_rms_norm(Stream::cpu(2), *make_solo_communicator(), *delta, *residual, *weight, epsilon, *out);
    EXPECT_EQ(testing::bit_difference(*residual, *sum), "");
    const double half_ulp = dtype == DType::kF32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, -8);
    EXPECT_EQ(testing::difference(*out, *want, testing::bound(1e-30, half_ulp * 1.01 + 4 * std::ldexp(1.0, -24))), "");
  }
}

TEST(RmsNorm, RowsDoNotInfluenceEachOther) {
  const OwnedTensor residual = testing::random_tensor(DType::kF32, {4, 64}, 5);
  const OwnedTensor out(DType::kF32, {4, 64});
  residual->row<float>(1)[3] = std::numeric_limits<float>::quiet_NaN();
  reduce_add_rms_norm(Stream::cpu(2), *make_solo_communicator(), Tensor(), *residual, *ones(64), 1e-5f, *out);
  for (std::int64_t r = 0; r < 4; ++r) EXPECT_EQ(std::isnan(out->row<float>(r)[0]), r == 1) << r;
}

TEST(RmsNorm, AZeroRowStaysZero) {
  const OwnedTensor residual(DType::kF32, {1, 64}, 0);
  const OwnedTensor out(DType::kF32, {1, 64});
  reduce_add_rms_norm(Stream::cpu(1), *make_solo_communicator(), Tensor(), *residual, *ones(64), 1e-5f, *out);
  for (std::int64_t h = 0; h < 64; ++h) EXPECT_EQ(out->as<float>()[h], 0.0f);
}

TEST(RmsNorm, DeltasOfAllRanksAreAdded) {
  auto communicators = make_loopback_communicators(2);
  std::vector<OwnedTensor> residuals, deltas, outs;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    residuals.push_back(testing::random_tensor(DType::kF32, {3, 40}, 6));
    deltas.push_back(testing::random_tensor(DType::kF32, {3, 40}, 7 + rank));
    outs.emplace_back(DType::kF32, std::initializer_list<std::int64_t>{3, 40});
  }
  OwnedTensor want = testing::random_tensor(DType::kF32, {3, 40}, 6);
  for (std::int64_t i = 0; i < 120; ++i) want->as<float>()[i] += deltas[0]->as<float>()[i] + deltas[1]->as<float>()[i];
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      reduce_add_rms_norm(Stream::cpu(1), *communicators[rank], *deltas[rank], *residuals[rank], *ones(40), 1e-5f,
                          *outs[rank]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(testing::difference(*residuals[0], *want, testing::bound(4e-7, 0)), "");
  EXPECT_EQ(testing::bit_difference(*residuals[1], *residuals[0]), "");
  EXPECT_EQ(testing::bit_difference(*outs[1], *outs[0]), "");
}

}  // namespace
}  // namespace rose::ops
