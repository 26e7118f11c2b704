#include "ops/experts/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/experts/experts_x86.h"
#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;

constexpr float kLimit = 7;

struct Sizes {
  std::int64_t rows = 4, per_token = 4, experts = 8, hidden = 64, intermediate = 96;
};

struct Layer {
  OwnedWeight gate_up, down;
  ExpertWeights weights;

  Layer(WeightFormat format, const Sizes& sizes, std::uint64_t seed) {
    gate_up = testing::random_weight(
        format, {.experts = sizes.experts, .out = 2 * sizes.intermediate, .in = sizes.hidden}, seed);
    down = testing::random_weight(format, {.experts = sizes.experts, .out = sizes.hidden, .in = sizes.intermediate},
                                  seed + 9);
    weights = {*gate_up, *down, 0};
  }
};

struct Routes {
  OwnedTensor experts, weights;
  Routing routing;

  Routes(const Sizes& sizes, const std::vector<std::int32_t>& ids, std::uint64_t seed) {
    experts = OwnedTensor(DType::kI32, {sizes.rows, sizes.per_token});
    weights = testing::random_tensor(DType::kF32, {sizes.rows, sizes.per_token}, seed);
    std::copy(ids.begin(), ids.end(), experts->as<std::int32_t>());
    routing = {*experts, *weights};
  }
};

// Distinct experts per row.
std::vector<std::int32_t> random_ids(const Sizes& sizes, std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < sizes.rows; ++r) {
    const auto first = random_bits(seed, static_cast<std::uint64_t>(r)) % static_cast<std::uint64_t>(sizes.experts);
    for (std::int64_t k = 0; k < sizes.per_token; ++k) {
      ids.push_back(static_cast<std::int32_t>((first + static_cast<std::uint64_t>(k) * 3) %
                                              static_cast<std::uint64_t>(sizes.experts)));
    }
  }
  return ids;
}

void run(int threads, const Tensor& x, const Routing& routing, const ExpertWeights& weights, const Tensor& y) {
  const std::int64_t needed = experts_scratch_elements(Stream::cpu(1), {.rows_max = x.size(0),
                                                                        .experts_per_token = routing.experts.size(1),
                                                                        .experts_held = weights.down.experts,
                                                                        .hidden = x.size(1),
                                                                        .intermediate = weights.down.in});
  std::vector<float> memory(static_cast<std::size_t>(needed) + 16, std::nanf(""));  // poisoned
  const std::size_t shift = (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  const Tensor scratch(memory.data() + shift, DType::kF32, Device{}, {needed});
  experts(Stream::cpu(threads), x, routing, weights, kLimit, scratch, y);
}

// The error of one row: gate_up sums err by n eps sum |w x|; swiglu passes an error of u on with a slope of at most
// 1.1 (gate) * 8 and 7 (up); down sums n of those. Evaluated with norms rather than element by element, hence the slack
// of the largest weight row.
double row_bound(const Sizes& sizes, const Layer& layer, const OwnedTensor& x, const Routes& routes, std::int64_t row) {
  const double eps = std::ldexp(1.0, -24);
  std::vector<float> w(static_cast<std::size_t>(std::max(sizes.hidden, sizes.intermediate)));
  double total = 0;
  for (std::int64_t k = 0; k < sizes.per_token; ++k) {
    const std::int32_t e = routes.experts->row<std::int32_t>(row)[k];
    if (e < 0 || e >= sizes.experts) continue;
    double u_error = 0;
    for (std::int64_t o = 0; o < layer.weights.gate_up.out; ++o) {
      decode_row(layer.weights.gate_up, e, o, w.data());
      double sum = 1;
      for (std::int64_t i = 0; i < sizes.hidden; ++i) {
        sum += std::fabs(static_cast<double>(w[static_cast<std::size_t>(i)]) *
                         testing::element(*x, row * sizes.hidden + i));
      }
      u_error = std::max(u_error, static_cast<double>(sizes.hidden + 2) * eps * sum);
    }
    const double a_error = 16 * u_error + 56 * 8 * eps;
    double worst = 0;
    for (std::int64_t o = 0; o < layer.weights.down.out; ++o) {
      decode_row(layer.weights.down, e, o, w.data());
      double sum = 1;
      for (std::int64_t i = 0; i < sizes.intermediate; ++i)
        sum += std::fabs(static_cast<double>(w[static_cast<std::size_t>(i)]));
      worst = std::max(worst, sum * (a_error + static_cast<double>(sizes.intermediate + 2) * eps * 56));
    }
    total += std::fabs(static_cast<double>(routes.weights->row<float>(row)[k])) * worst;
  }
  return total * 1.01 + 1e-30;
}

void expect_near_reference(WeightFormat format, const Sizes& sizes, const std::vector<std::int32_t>& ids) {
  const Layer layer(format, sizes, 11);
  const Routes routes(sizes, ids, 12);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {sizes.rows, sizes.hidden}, 13, 2);
  const OwnedTensor got(DType::kF32, {sizes.rows, sizes.hidden});
  const OwnedTensor want(DType::kF32, {sizes.rows, sizes.hidden});
  run(2, *x, routes.routing, layer.weights, *got);
  ref::experts(Stream::cpu(2), *x, routes.routing, layer.weights, kLimit, *want);
  std::vector<double> bounds;
  for (std::int64_t r = 0; r < sizes.rows; ++r) bounds.push_back(row_bound(sizes, layer, x, routes, r));
  EXPECT_EQ(testing::difference(*got, *want,
                                [&](std::int64_t i, double value) {
                                  return bounds[static_cast<std::size_t>(i / sizes.hidden)] + std::fabs(value) * 1e-6;
                                }),
            "");
}

class ExpertsFormat : public ::testing::TestWithParam<WeightFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, ExpertsFormat,
                         ::testing::Values(WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp4),
                         [](const auto& f) { return std::string(weight_format_name(f.param)); });

TEST_P(ExpertsFormat, MatchesTheReference) {
  for (const Sizes& sizes : {Sizes{.rows = 1}, Sizes{.rows = 9, .hidden = 96, .intermediate = 160}, Sizes{.rows = 0},
                             Sizes{.rows = 5, .per_token = 1, .experts = 2, .hidden = 192, .intermediate = 32}}) {
    expect_near_reference(GetParam(), sizes, random_ids(sizes, 21));
  }
}

TEST_P(ExpertsFormat, OneExpertMayTakeAllRowsAndOthersNone) {
  const Sizes sizes{.rows = 60, .per_token = 1, .experts = 5, .hidden = 32, .intermediate = 64};
  expect_near_reference(GetParam(), sizes, std::vector<std::int32_t>(60, 3));
}

TEST(Experts, WidthsNeedNotBeWholeGroupsInBf16) {
  const Sizes sizes{.rows = 3, .per_token = 2, .experts = 3, .hidden = 37, .intermediate = 45};
  expect_near_reference(WeightFormat::kBf16, sizes, {0, 1, 2, 0, 1, 2});
}

TEST_P(ExpertsFormat, ARowIsTheSameBitsAloneInAnyBatchAndWithAnyThreads) {
  const Sizes sizes{.rows = 30};
  const Layer layer(GetParam(), sizes, 31);
  const Routes routes(sizes, random_ids(sizes, 32), 33);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {30, sizes.hidden}, 34);
  const OwnedTensor whole(DType::kF32, {30, sizes.hidden});
  run(3, *x, routes.routing, layer.weights, *whole);
  for (const std::int64_t begin : {0, 1, 17, 29}) {
    const std::int64_t end = std::min<std::int64_t>(begin + 5, 30);
    const OwnedTensor part(DType::kF32, {end - begin, sizes.hidden});
    const Routing some{routes.experts->rows(begin, end), routes.weights->rows(begin, end)};
    run(1, x->rows(begin, end), some, layer.weights, *part);
    EXPECT_EQ(testing::bit_difference(*part, whole->rows(begin, end)), "") << begin;
  }
}

// Expert parallelism: each rank runs its own experts on all rows, and the parts add up to the whole.
TEST_P(ExpertsFormat, PartsHeldByRanksAddUpToTheWhole) {
  const Sizes sizes{.rows = 12};
  const Layer layer(GetParam(), sizes, 41);
  const Routes routes(sizes, random_ids(sizes, 42), 43);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {sizes.rows, sizes.hidden}, 44);
  const OwnedTensor whole(DType::kF32, {sizes.rows, sizes.hidden});
  run(1, *x, routes.routing, layer.weights, *whole);
  const auto held = [](const Weight& weight, std::int64_t begin, std::int64_t end) {
    Weight part = weight;
    part.experts = end - begin;
    part.payload = weight.payload.rows(begin, end);
    if (!weight.scales.empty()) part.scales = weight.scales.rows(begin, end);
    part.bias = weight.bias.rows(begin, end);
    return part;
  };
  std::vector<double> sum(static_cast<std::size_t>(sizes.rows * sizes.hidden));
  std::vector<double> sizes_sum(sum.size());
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}, {4, 8}}) {
    const OwnedTensor part(DType::kF32, {sizes.rows, sizes.hidden});
    run(2, *x, routes.routing, {held(*layer.gate_up, begin, end), held(*layer.down, begin, end), begin}, *part);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += static_cast<double>(part->as<float>()[i]);
      sizes_sum[i] += std::fabs(static_cast<double>(part->as<float>()[i]));
    }
  }
  // Same products, f32 sums of at most four terms associated differently. Partial sums of one rank may cancel, hence
  // the allowance for terms larger than the parts.
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(whole->as<float>()[i]), sum[i], 1e-5 * (sizes_sum[i] + 1)) << i;
  }
}

TEST(Experts, RowsWithoutAnExpertHereGetZeros) {
  const Sizes sizes{.rows = 2, .per_token = 2};
  Layer layer(WeightFormat::kMxfp4, sizes, 51);
  layer.weights.first_expert = 8;
  const Routes routes(sizes, {0, 7, 16, -1}, 52);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {2, sizes.hidden}, 53);
  const OwnedTensor y(DType::kF32, {2, sizes.hidden});
  run(2, *x, routes.routing, layer.weights, *y);
  for (std::int64_t i = 0; i < y->elements(); ++i) EXPECT_EQ(y->as<float>()[i], 0.0f);
}

TEST(Experts, TheDownBiasIsInsideTheWeighting) {
  const Sizes sizes{.rows = 1, .per_token = 2, .experts = 2};
  const Layer layer(WeightFormat::kBf16, sizes, 61);
  std::fill_n(layer.down.payload->as<Bf16>(), layer.down.payload->elements(), to_bf16(0));
  const Routes routes(sizes, {1, 0}, 62);
  routes.weights->as<float>()[0] = 0.25f;
  routes.weights->as<float>()[1] = 0.5f;
  const OwnedTensor x = testing::random_tensor(DType::kF32, {1, sizes.hidden}, 63);
  const OwnedTensor y(DType::kF32, {1, sizes.hidden});
  run(1, *x, routes.routing, layer.weights, *y);
  for (std::int64_t h = 0; h < sizes.hidden; ++h) {
    const float want =
        0.25f * to_float(layer.down.bias->row<Bf16>(1)[h]) + 0.5f * to_float(layer.down.bias->row<Bf16>(0)[h]);
    EXPECT_FLOAT_EQ(y->as<float>()[h], want) << h;
  }
}

TEST(Experts, ANanRowFailsAlone) {
  const Sizes sizes{.rows = 6};
  const Layer layer(WeightFormat::kMxfp4, sizes, 71);
  const Routes routes(sizes, random_ids(sizes, 72), 73);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {6, sizes.hidden}, 74);
  x->row<float>(2)[5] = std::numeric_limits<float>::quiet_NaN();
  const OwnedTensor y(DType::kF32, {6, sizes.hidden});
  run(2, *x, routes.routing, layer.weights, *y);
  for (std::int64_t r = 0; r < 6; ++r) EXPECT_EQ(std::isnan(y->row<float>(r)[0]), r == 2) << r;
}

// Self-test values of the activation: gate has no lower clamp, up is clamped on both sides.
TEST(Swiglu, ClampsAsPublished) {
  struct Value {
    float gate, up;
    double want;
  };
  const Value values[] = {{20, -20, -41.999719}, {-20, 20, -2.63e-13},  {1, 0, 0.845796}, {0.5f, -1, 0},
                          {7, 7, 55.999625},     {100, 100, 55.999625}, {-1000, 7, 0},    {0, 5, 0}};
  float u[64] = {};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    u[2 * i] = values[i].gate;
    u[2 * i + 1] = values[i].up;
  }
  float out[32];
  x86::swiglu_group(u, kLimit, out);
  for (std::size_t i = 0; i < std::size(values); ++i) {
    EXPECT_NEAR(static_cast<double>(out[i]), values[i].want, 2e-6 * std::fabs(values[i].want) + 1e-15) << i;
  }
}

TEST(Swiglu, MatchesTheFormulaOverTheWholeRange) {
  for (int begin = -1200; begin < 400; begin += 32) {
    float u[64];
    float out[32];
    for (int j = 0; j < 32; ++j) {
      u[2 * j] = static_cast<float>(begin + j) / 32;
      u[2 * j + 1] = static_cast<float>((begin * 7 + j * 13) % 300) / 32;
    }
    x86::swiglu_group(u, kLimit, out);
    for (int j = 0; j < 32; ++j) {
      const double gate = std::min(static_cast<double>(u[2 * j]), 7.0);
      const double up = std::clamp(static_cast<double>(u[2 * j + 1]), -7.0, 7.0);
      const double want = gate / (1 + std::exp(-static_cast<double>(kSwigluAlpha) * gate)) * (up + 1);
      // exp of an f32 argument x errs by x eps relative: |1.702 * 37.5| = 64 of them.
      EXPECT_NEAR(static_cast<double>(out[j]), want, std::fabs(want) * 70 * std::ldexp(1.0, -24)) << u[2 * j];
    }
  }
}

}  // namespace
}  // namespace rose::ops
