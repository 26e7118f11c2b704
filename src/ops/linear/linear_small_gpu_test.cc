// The kernels for few rows against the reference. Per element, with S = sum |x w| + |bias|: a tensor-core product of 16
// adds 17 terms, each cut at 2^-24 of the largest at worst twice, and rounds once; a part has 4 of them for every 512
// of `in`; then eight parts and the bias are added in f32, and the sum is rounded to y's type.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/linear/linear_small_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using cuda::LinearSmallKernel;
using testing::OwnedTensor;

struct Case {
  int rows, out, in;
  bool bias;
  DType y;
};

double sum_of_sizes(const Tensor& x, const Weight& weight, std::int64_t row, std::int64_t feature) {
  double sum = weight.bias.empty() ? 0 : std::fabs(testing::element(weight.bias, feature));
  for (std::int64_t i = 0; i < weight.in; ++i) {
    sum +=
        std::fabs(testing::element(x, row * weight.in + i) * testing::element(weight.payload, feature * weight.in + i));
  }
  return sum;
}

void expect_reference(const Case& c, LinearSmallKernel kernel) {
  const auto x = testing::random_tensor(DType::kBf16, {c.rows, c.in}, 1);
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = c.out, .in = c.in, .bias = c.bias}, 2);
  OwnedTensor expected(DType::kF32, {c.rows, c.out}), actual(c.y, {c.rows, c.out});
  ref::linear(Stream::cpu(8), *x, *weight, *expected);
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual);
  ASSERT_TRUE(cuda::linear_small_with(gpu.stream, gpu.upload(*x), gpu.upload(*weight), y, kernel));
  gpu.download(y, *actual);
  const int steps = (c.in + 511) / 512;
  const double rounding = c.y == DType::kF32 ? std::exp2(-24) : std::exp2(-9);
  const auto allowed = [&](std::int64_t i, double want) {
    const double sums = sum_of_sizes(*x, *weight, i / c.out, i % c.out) * (4 * steps * 36 + 10) * std::exp2(-24);
    return sums + (std::fabs(want) + sums) * rounding + std::fabs(want) * std::exp2(-24);
  };
  EXPECT_EQ(testing::difference(*actual, *expected, allowed), "");
}

class SmallLinear : public ::testing::TestWithParam<Case> {};

TEST_P(SmallLinear, OverWarpsEqualsTheReference) {
  if (GetParam().rows > 16) GTEST_SKIP() << "more rows than this kernel takes";
  expect_reference(GetParam(), LinearSmallKernel::kWarps);
}
TEST_P(SmallLinear, OverAClusterEqualsTheReference) { expect_reference(GetParam(), LinearSmallKernel::kCluster); }

constexpr DType kF32 = DType::kF32, kBf16 = DType::kBf16;
INSTANTIATE_TEST_SUITE_P(Shapes, SmallLinear,
                         ::testing::Values(Case{1, 16, 64, false, kBf16}, Case{1, 5120, 2880, true, kBf16},
                                           Case{1, 20011, 256, false, kF32},  // several tiles a block, a ragged last
                                           Case{2, 32, 2880, true, kF32}, Case{3, 17, 8, true, kF32},
                                           Case{7, 128, 4096, true, kBf16}, Case{8, 1, 520, true, kF32},
                                           Case{9, 200, 1000, false, kBf16}, Case{16, 128, 2880, true, kF32},
                                           Case{17, 129, 360, true, kBf16}, Case{32, 320, 1032, true, kF32},
                                           Case{33, 127, 2880, true, kF32}, Case{64, 4500, 136, true, kBf16},
                                           Case{4, 9000, 1032, true, kF32}, Case{64, 136, 4096, false, kF32},
                                           Case{63, 40, 56, true, kBf16}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return std::to_string(c.rows) + "x" + std::to_string(c.out) + "x" + std::to_string(c.in);
                         });

// One row alone, over warps, has the bits that it has among others, over a cluster.
TEST(SmallLinear, ARowDependsNeitherOnTheOthersNorOnTheKernel) {
  const int out = 136, in = 2888;
  const auto x = testing::random_tensor(kBf16, {64, in}, 3);
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 4);
  OwnedTensor alone(kF32, {64, out}), together(kF32, {64, out});
  testing::Gpu gpu;
  const Tensor gpu_x = gpu.upload(*x), gpu_alone = gpu.like(*alone), gpu_together = gpu.like(*together);
  const Weight gpu_weight = gpu.upload(*weight);
  for (int row = 0; row < 64; ++row) {
    ASSERT_TRUE(cuda::linear_small_with(gpu.stream, gpu_x.rows(row, row + 1), gpu_weight, gpu_alone.rows(row, row + 1),
                                        LinearSmallKernel::kWarps));
  }
  gpu.download(gpu_alone, *alone);
  for (const int rows : {1, 5, 8, 11, 16, 29, 40, 64}) {
    for (const LinearSmallKernel kernel : {LinearSmallKernel::kWarps, LinearSmallKernel::kCluster}) {
      if (kernel == LinearSmallKernel::kWarps && rows > 16) continue;
      ASSERT_TRUE(
          cuda::linear_small_with(gpu.stream, gpu_x.rows(0, rows), gpu_weight, gpu_together.rows(0, rows), kernel));
      gpu.download(gpu_together, *together);
      EXPECT_EQ(testing::bit_difference(together->rows(0, rows), alone->rows(0, rows)), "") << rows << " rows";
    }
  }
}

// Views of wider tensors; what lies beside and below y stays as it was.
TEST(SmallLinear, ReadsAndWritesNothingBeyondItsViews) {
  const int out = 37, in = 72;
  const auto x = testing::random_tensor(kBf16, {9, in + 24}, 5);
  for (int i = 0; i < 9 * (in + 24); ++i) {
    if (i % (in + 24) >= in) testing::set_element(*x, i, NAN);
  }
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 6);
  OwnedTensor narrow(kBf16, {9, in}), expected(kF32, {9, out}), actual(kF32, {11, out + 3});
  for (int i = 0; i < 9 * in; ++i) {
    testing::set_element(*narrow, i, static_cast<float>(testing::element(*x, i / in * (in + 24) + i % in)));
  }
  ref::linear(Stream::cpu(1), *narrow, *weight, *expected);
  testing::Gpu gpu;
  const Tensor gpu_x = gpu.upload(*x).slice(1, 0, in);
  const Weight gpu_weight = gpu.upload(*weight);
  for (const LinearSmallKernel kernel : {LinearSmallKernel::kWarps, LinearSmallKernel::kCluster}) {
    const Tensor y = gpu.like(*actual);
    ASSERT_TRUE(cuda::linear_small_with(gpu.stream, gpu_x, gpu_weight, y.slice(1, 0, out).rows(0, 9), kernel));
    gpu.download(y, *actual);
    for (int i = 0; i < 11 * (out + 3); ++i) {
      const int row = i / (out + 3), column = i % (out + 3);
      const double got = testing::element(*actual, i);
      if (row >= 9 || column >= out) {
        ASSERT_TRUE(std::isnan(got)) << "row " << row << ", column " << column;
      } else {
        const double sums = sum_of_sizes(*narrow, *weight, row, column) * (4 * 36 + 12) * std::exp2(-24);
        ASSERT_NEAR(got, testing::element(*expected, row * out + column), sums);
      }
    }
  }
}

TEST(SmallLinear, TheKernelIsChosenByShape) {
  for (const int in : {8, 256, 2880, 4096}) {
    EXPECT_TRUE(cuda::linear_small_fits(1, in) && cuda::linear_small_fits(64, in)) << in;
  }
  EXPECT_FALSE(cuda::linear_small_fits(0, 2880));
  EXPECT_FALSE(cuda::linear_small_fits(65, 2880));
  EXPECT_FALSE(cuda::linear_small_fits(1, 2884));
  EXPECT_FALSE(cuda::linear_small_fits(64, 1 << 20));
}

}  // namespace
}  // namespace rose::ops
