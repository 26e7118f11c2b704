// The products for few rows against the double-precision reference on the same bf16 input.
//
// Weights are exact and sums are f32 (2^-24 a term, far below what follows), so two roundings are left: the activation
// a_j to bf16 between the products (2^-9 of a_j at most) and the result (2^-9 of y). The first makes an error of
// sum_j W_dj a_j d_j with |d_j| <= 2^-9, independent in j: its standard deviation is at most 2^-9 / sqrt(3) of the norm
// of the terms, and the norm of the terms is what a row of y has as its root mean square (random signs; weighting over
// experts included). So an element may be off by 2^-9 |y| + 8 * 2^-9 rms(row), 13 standard deviations, and a row's
// norm by 3 * 2^-9. A wrong scale, a swapped nibble or a lost 0.5 is tens of percent of the norm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/experts/experts_decode_cuda.h"
#include "ops/experts/experts_gpu_problem.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;
using testing::OwnedWeight;

constexpr double kRounding = 1.0 / 512;

enum class Choice { kSpread, kOneTakesAll, kNoneHeld };

struct Case {
  const char* name;
  int rows, top, hidden, intermediate, experts, held, first;
  Choice choice = Choice::kSpread;
  bool extreme_scales = false;
  bool down_bias = true;
};

struct Problem {
  explicit Problem(const Case& c)
      : x(testing::random_tensor(DType::kBf16, {c.rows, c.hidden}, 1, 3.f)),
        gate_up(testing::random_weight(WeightFormat::kMxfp4,
                                       {.experts = c.held, .out = 2 * c.intermediate, .in = c.hidden}, 2)),
        down(testing::random_weight(
            WeightFormat::kMxfp4, {.experts = c.held, .out = c.hidden, .in = c.intermediate, .bias = c.down_bias}, 3)),
        chosen(DType::kI32, {c.rows, c.top}),
        weights(DType::kF32, {c.rows, c.top}) {
    for (int r = 0; r < c.rows; ++r) {
      const auto start = static_cast<int>(random_bits(9, static_cast<std::uint64_t>(r)) % 1000);
      for (int i = 0; i < c.top; ++i) {
        chosen->row<std::int32_t>(r)[i] = ((c.choice == Choice::kSpread ? start : 0) + i) % c.experts;
        weights->row<float>(r)[i] = 0.4f - 0.1f * static_cast<float>(i % 4);
      }
    }
    if (c.extreme_scales) {
      for (const OwnedWeight* weight : {&gate_up, &down}) {
        const std::uint8_t unusual[] = {0, 1, 60, 135};
        for (std::int64_t i = 0; i < weight->scales->elements(); i += 7) {
          weight->scales->as<std::uint8_t>()[i] = unusual[i / 7 % 4];
        }
      }
    }
  }
  ExpertWeights held(int first) const { return {.gate_up = *gate_up, .down = *down, .first_expert = first}; }

  OwnedTensor x;
  OwnedWeight gate_up, down;
  OwnedTensor chosen, weights;
};

// Runs `times` launches one after another on fresh, poisoned outputs; the last result.
OwnedTensor on_gpu(const Case& c, const Problem& problem, int times = 1) {
  Gpu gpu;
  const testing::GpuExperts held(gpu, *problem.gate_up, *problem.down, c.first);
  const cuda::ExpertDecodeShape shape{.rows_max = std::min(c.rows + 3, cuda::kExpertDecodeRowsMax),
                                      .experts_per_token = c.top,
                                      .hidden = c.hidden,
                                      .intermediate = c.intermediate};
  const OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::experts_decode_work_bytes(shape))});
  const Routing routing{.experts = gpu.upload(*problem.chosen), .weights = gpu.upload(*problem.weights)};
  OwnedTensor actual(DType::kBf16, {c.rows, c.hidden});
  const Tensor work = gpu.like(*memory), x = gpu.upload(*problem.x);
  for (int i = 0; i < times; ++i) {
    const Tensor y = gpu.like(*actual);
    cuda::experts_decode(gpu.stream, {.x = x,
                                      .routing = routing,
                                      .weights = held.weights,
                                      .swiglu_limit = 7,
                                      .shape = shape,
                                      .work = work.raw(),
                                      .y = y});
    gpu.download(y, *actual);
  }
  return actual;
}

class CudaExpertsDecode : public ::testing::TestWithParam<Case> {};

TEST_P(CudaExpertsDecode, EqualsTheReference) {
  const Case c = GetParam();
  const Problem problem(c);
  const OwnedTensor actual = on_gpu(c, problem);
  OwnedTensor want(DType::kF32, {c.rows, c.hidden});
  const Routing routing{.experts = *problem.chosen, .weights = *problem.weights};
  ref::experts(Stream::cpu(4), *problem.x, routing, problem.held(c.first), 7, *want);
  for (int r = 0; r < c.rows; ++r) {
    double square = 0, error = 0;
    for (int d = 0; d < c.hidden; ++d) {
      const double w = static_cast<double>(want->row<float>(r)[d]), got = to_float(actual->row<Bf16>(r)[d]);
      ASSERT_TRUE(std::isfinite(got)) << "row " << r << ", element " << d;
      square += w * w;
      error += (got - w) * (got - w);
    }
    EXPECT_LE(std::sqrt(error), 3 * kRounding * std::sqrt(square)) << "row " << r;
    const double rms = std::sqrt(square / c.hidden);
    for (int d = 0; d < c.hidden; ++d) {
      const double w = static_cast<double>(want->row<float>(r)[d]), got = to_float(actual->row<Bf16>(r)[d]);
      ASSERT_LE(std::fabs(got - w), kRounding * (std::fabs(w) + 8 * rms)) << "row " << r << ", element " << d;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaExpertsDecode,
    ::testing::Values(Case{"one_row", 1, 4, 256, 320, 4, 4, 0}, Case{"no_row", 0, 4, 256, 320, 4, 4, 0},
                      Case{"three_rows_odd_groups", 3, 4, 96, 160, 8, 8, 0},
                      Case{"eight_rows_of_one_expert", 8, 4, 192, 320, 8, 8, 0, Choice::kOneTakesAll},
                      Case{"nine_rows_of_one_expert", 9, 4, 192, 320, 8, 8, 0, Choice::kOneTakesAll},
                      Case{"all_rows_of_one_expert", 64, 4, 256, 320, 8, 8, 0, Choice::kOneTakesAll},
                      Case{"spread", 64, 4, 256, 320, 16, 16, 0}, Case{"many_experts", 64, 4, 64, 96, 256, 256, 0},
                      Case{"some_held", 40, 4, 192, 320, 8, 3, 2}, Case{"some_held_few_rows", 5, 4, 192, 320, 8, 3, 2},
                      Case{"none_held", 6, 4, 192, 320, 16, 4, 8, Choice::kNoneHeld},
                      Case{"top_eight", 64, 8, 128, 64, 16, 16, 0}, Case{"top_one", 7, 1, 128, 64, 16, 16, 0},
                      Case{"no_down_bias", 6, 4, 256, 320, 4, 4, 0, Choice::kSpread, false, false},
                      Case{"extreme_scales", 6, 4, 256, 320, 4, 4, 0, Choice::kSpread, true},
                      Case{"published_width_one_row", 1, 4, 2880, 2880, 4, 4, 0},
                      Case{"published_width", 20, 4, 2880, 2880, 5, 2, 1}),
    [](const auto& info) { return info.param.name; });

// Places come from counting and sums have a fixed order: nothing may depend on which block or warp was first.
TEST(CudaExpertsDecodeRepeat, SameBitsInEveryLaunch) {
  for (const int rows : {2, 33}) {
    const Case c{"", rows, 4, 512, 320, 8, 8, 0};
    const Problem problem(c);
    const OwnedTensor once = on_gpu(c, problem), often = on_gpu(c, problem, 20);
    EXPECT_EQ(std::memcmp(once->raw(), often->raw(), once->bytes()), 0) << rows << " rows";
  }
}

}  // namespace
}  // namespace rose::ops
