// The FP8 products against a double-precision computation that rounds where the kernels do: x to e4m3 with one scale
// for 128 neighbours, the activation to e4m3 of 8 a, each weighted row to bf16. What is left is f32 accumulation, bf16
// rounding of the rows (2^-9 each, at most 4 of them) and activations that fall on the other side of a rounding edge:
// each such flip is one e4m3 step of one of the `intermediate` terms, so the norm of the difference stays far under 1 %
// while a wrong scale, a swapped nibble or a missed bias is tens of percent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/experts/experts.h"
#include "ops/experts/experts_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

struct Case {
  const char* name;
  int rows, hidden, intermediate, experts, held, first;
  bool one_takes_all;
};

std::vector<double> quantized_row(const Tensor& x, int row) {
  const auto width = static_cast<int>(x.size(1));
  std::vector<double> out;
  for (int begin = 0; begin < width; begin += 128) {
    const int end = std::min(width, begin + 128);
    float largest = 0;
    for (int i = begin; i < end; ++i) largest = std::max(largest, std::fabs(to_float(x.row<Bf16>(row)[i])));
    const float scale = largest > 0 ? largest / 448.f : 1.f, inverse = 1.f / scale;
    for (int i = begin; i < end; ++i)
      out.push_back(static_cast<double>(to_float(to_f8e4m3(to_float(x.row<Bf16>(row)[i]) * inverse))) * scale);
  }
  return out;
}

std::vector<double> product(const Weight& weight, int expert, const std::vector<double>& x) {
  std::vector<float> row(static_cast<std::size_t>(weight.in));
  std::vector<double> y;
  for (std::int64_t o = 0; o < weight.out; ++o) {
    decode_row(weight, expert, o, row.data());
    double sum = to_float(weight.bias.as<Bf16>()[expert * weight.out + o]);
    for (std::size_t i = 0; i < row.size(); ++i) sum += row[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

std::vector<double> activation(const std::vector<double>& u, double limit) {
  std::vector<double> a;
  for (std::size_t j = 0; j < u.size(); j += 2) {
    const double gate = std::min(u[j], limit), up = std::clamp(u[j + 1], -limit, limit);
    const double value = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
    a.push_back(static_cast<double>(to_float(to_f8e4m3(static_cast<float>(value * 8)))) / 8);
  }
  return a;
}

class CudaExperts : public ::testing::TestWithParam<Case> {};

TEST_P(CudaExperts, EqualsTheRoundedComputation) {
  const Case c = GetParam();
  constexpr int kTop = 4;
  const auto x = testing::random_tensor(DType::kBf16, {c.rows, c.hidden}, 1, 3.f);
  const auto gate_up =
      testing::random_weight(WeightFormat::kMxfp4, {.experts = c.held, .out = 2 * c.intermediate, .in = c.hidden}, 2);
  const auto down =
      testing::random_weight(WeightFormat::kMxfp4, {.experts = c.held, .out = c.hidden, .in = c.intermediate}, 3);
  OwnedTensor chosen(DType::kI32, {c.rows, kTop}), weights(DType::kF32, {c.rows, kTop});
  for (int r = 0; r < c.rows; ++r) {
    for (int i = 0; i < kTop; ++i) {
      const int start =
          c.one_takes_all
              ? 0
              : static_cast<int>(random_bits(9, static_cast<std::uint64_t>(r)) % static_cast<std::uint64_t>(c.experts));
      chosen->row<std::int32_t>(r)[i] = (start + i) % c.experts;
      weights->row<float>(r)[i] = 0.4f - 0.1f * static_cast<float>(i);
    }
  }
  double error = 0, norm = 0;
  Gpu gpu;
  const ExpertWeights held{.gate_up = gpu.upload(*gate_up), .down = gpu.upload(*down), .first_expert = c.first};
  const OwnedTensor zero(DType::kI32, {1}, 0);
  const Tensor inexact = gpu.upload(*zero);
  const OwnedTensor up_memory(DType::kU8, {static_cast<std::int64_t>(cuda::prepared_bytes(held.gate_up))}),
      down_memory(DType::kU8, {static_cast<std::int64_t>(cuda::prepared_bytes(held.down))});
  const auto up_scales =
      cuda::prepare(gpu.stream, held.gate_up, gpu.like(*up_memory).raw(), inexact.as<std::int32_t>());
  const auto down_scales =
      cuda::prepare(gpu.stream, held.down, gpu.like(*down_memory).raw(), inexact.as<std::int32_t>());
  cuda::ExpertWork work{.shape = {.rows_max = c.rows + 5,
                                  .experts_per_token = kTop,
                                  .experts_held = c.held,
                                  .hidden = c.hidden,
                                  .intermediate = c.intermediate}};
  const OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::expert_work_bytes(work.shape))});
  work.memory = gpu.like(*memory).raw();  // poisoned
  const Routing routing{.experts = gpu.upload(*chosen), .weights = gpu.upload(*weights)};
  OwnedTensor actual(DType::kBf16, {c.rows, c.hidden});
  const Tensor y = gpu.like(*actual), device_x = gpu.upload(*x);
  cuda::experts(gpu.stream, {.x = device_x,
                             .routing = routing,
                             .weights = held,
                             .gate_up = up_scales,
                             .down = down_scales,
                             .swiglu_limit = 7,
                             .work = work,
                             .y = y});
  gpu.download(y, *actual);
  OwnedTensor tiles(DType::kI32, {1});
  gpu.download(inexact, *tiles);
  EXPECT_EQ(tiles->as<std::int32_t>()[0], 0);

  for (int r = 0; r < c.rows; ++r) {
    const std::vector<double> input = quantized_row(*x, r);
    std::vector<double> want(static_cast<std::size_t>(c.hidden), 0);
    for (int i = 0; i < kTop; ++i) {
      const int expert = chosen->row<std::int32_t>(r)[i] - c.first;
      if (expert < 0 || expert >= c.held) continue;
      const std::vector<double> out = product(*down, expert, activation(product(*gate_up, expert, input), 7));
      for (std::size_t d = 0; d < want.size(); ++d) {
        want[d] += to_float(to_bf16(static_cast<float>(out[d] * weights->row<float>(r)[i])));
      }
    }
    for (std::size_t d = 0; d < want.size(); ++d) {
      const double got = to_float(actual->row<Bf16>(r)[d]);
      ASSERT_TRUE(std::isfinite(got)) << c.name << ": row " << r << ", element " << d;
      error += (got - want[d]) * (got - want[d]);
      norm += want[d] * want[d];
    }
  }
  EXPECT_LT(std::sqrt(error), 0.006 * std::sqrt(norm)) << c.name << ": " << std::sqrt(error / norm);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaExperts,
                         ::testing::Values(Case{"one_row", 1, 256, 320, 4, 4, 0, false},
                                           Case{"tails", 70, 192, 320, 8, 8, 0, false},
                                           Case{"wide_tile", 40, 320, 160, 4, 4, 0, false},
                                           Case{"one_takes_all", 150, 192, 192, 8, 8, 0, true},
                                           Case{"some_held", 60, 192, 320, 8, 3, 2, false},
                                           Case{"published_width", 9, 2880, 2880, 4, 4, 0, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rose::ops
