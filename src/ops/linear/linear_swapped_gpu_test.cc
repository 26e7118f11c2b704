// The kernels with swapped operands against f64 (linear_oracle.h has the bounds), and a row among others against it
// alone, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_oracle.h"
#include "ops/linear/linear_swapped_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using namespace linear_oracle;
constexpr DType kF32 = DType::kF32, kBf16 = DType::kBf16;

struct Case {
  int rows, out, in;
  bool bias;
  DType y;
};

class SwappedLinear : public ::testing::TestWithParam<Case> {};

TEST_P(SwappedLinear, EqualsTheReference) {
  const Case c = GetParam();
  const auto x = testing::random_tensor(kBf16, {c.rows, c.in}, 1);
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = c.out, .in = c.in, .bias = c.bias}, 2);
  OwnedTensor actual(c.y, {c.rows, c.out});
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual);
  cuda::linear_swapped(gpu.stream, gpu.upload(*x), gpu.upload(*weight), y);
  gpu.download(y, *actual);
  expect_near(*actual, expected_of(*x, *weight));
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::to_string(c.rows) + "x" + std::to_string(c.out) + "x" + std::to_string(c.in);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SwappedLinear,
    ::testing::Values(Case{1, 16, 64, false, kBf16}, Case{1, 5120, 2880, true, kBf16}, Case{1, 2880, 4096, true, kF32},
                      Case{1, 40011, 72, false, kF32},  // several tiles a block, a ragged last
                      Case{2, 32, 2880, true, kF32}, Case{3, 17, 8, true, kF32}, Case{7, 128, 4096, true, kBf16},
                      Case{8, 1, 520, true, kF32}, Case{9, 200, 1000, false, kBf16}, Case{16, 128, 2880, true, kF32},
                      Case{17, 129, 360, true, kBf16}, Case{32, 320, 1032, true, kF32}, Case{33, 127, 2880, true, kF32},
                      Case{64, 4500, 136, true, kBf16}, Case{64, 136, 4096, false, kF32}, Case{63, 40, 56, true, kBf16},
                      Case{65, 300, 712, true, kBf16}, Case{128, 640, 256, true, kF32},
                      Case{100, 35003, 24, true, kBf16}, Case{129, 1280, 256, true, kBf16},
                      Case{250, 300, 584, false, kF32}, Case{256, 5120, 64, true, kBf16},
                      Case{300, 200, 200, true, kF32}, Case{513, 18000, 16, false, kF32}),
    case_name);

// Alone a row has the bits that it has among any others.
TEST(SwappedLinear, ARowDependsNotOnTheOthers) {
  for (const int out : {200, 2880, 20000}) {
    const int in = 520, most = 520;
    const auto x = testing::random_tensor(kBf16, {most, in}, 3);
    const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 4);
    OwnedTensor alone(kF32, {most, out}), together(kF32, {most, out});
    testing::Gpu gpu;
    const Tensor gpu_x = gpu.upload(*x), gpu_alone = gpu.like(*alone), gpu_together = gpu.like(*together);
    const Weight gpu_weight = gpu.upload(*weight);
    for (int row = 0; row < most; ++row) {
      cuda::linear_swapped(gpu.stream, gpu_x.rows(row, row + 1), gpu_weight, gpu_alone.rows(row, row + 1));
    }
    gpu.download(gpu_alone, *alone);
    for (const int rows : {5, 8, 11, 16, 29, 40, 64, 100, 128, 200, 256, 257, 512, 520}) {
      cuda::linear_swapped(gpu.stream, gpu_x.rows(0, rows), gpu_weight, gpu_together.rows(0, rows));
      gpu.download(gpu_together, *together);
      EXPECT_EQ(testing::bit_difference(together->rows(0, rows), alone->rows(0, rows)), "") << rows << " rows";
    }
  }
}

// At published shapes, where a reference on the CPU would take long: both round the same sum to bf16.
TEST(SwappedLinear, EqualsTheTiledKernelAtPublishedShapes) {
  struct Published {
    int rows, out, in;
  };
  for (const auto& [rows, out, in] :
       {Published{128, 5120, 2880}, {200, 2880, 4096}, {512, 5120, 2880}, {40, 2880, 4096}}) {
    const auto x = testing::random_tensor(kBf16, {rows, in}, 5);
    const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 6);
    OwnedTensor tiled(kBf16, {rows, out}), swapped(kBf16, {rows, out});
    testing::Gpu gpu;
    const Tensor gpu_x = gpu.upload(*x), gpu_tiled = gpu.like(*tiled), gpu_swapped = gpu.like(*swapped);
    const Weight gpu_weight = gpu.upload(*weight);
    cuda::linear_tiled(gpu.stream, gpu_x, gpu_weight, gpu_tiled, {128, 128});
    cuda::linear_swapped(gpu.stream, gpu_x, gpu_weight, gpu_swapped);
    gpu.download(gpu_tiled, *tiled);
    gpu.download(gpu_swapped, *swapped);
    for (std::int64_t i = 0; i < tiled->elements(); ++i) {
      const double want = testing::element(*tiled, i);
      ASSERT_NEAR(testing::element(*swapped, i), want, std::fabs(want) * std::exp2(-7) + 0.01)
          << rows << " rows of " << out << ", element " << i;
    }
  }
}

// Views of wider tensors; what lies beside and below y stays as it was. An odd stride of y allows no paired stores.
TEST(SwappedLinear, ReadsAndWritesNothingBeyondItsViews) {
  const int out = 37, in = 72;
  for (const int spare : {3, 4}) {
    const auto x = testing::random_tensor(kBf16, {9, in + 24}, 5);
    for (int i = 0; i < 9 * (in + 24); ++i) {
      if (i % (in + 24) >= in) testing::set_element(*x, i, NAN);
    }
    const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 6);
    OwnedTensor narrow(kBf16, {9, in}), actual(kF32, {11, out + spare}), inside(kF32, {9, out});
    for (int i = 0; i < 9 * in; ++i) {
      testing::set_element(*narrow, i, static_cast<float>(testing::element(*x, i / in * (in + 24) + i % in)));
    }
    testing::Gpu gpu;
    const Tensor y = gpu.like(*actual);
    cuda::linear_swapped(gpu.stream, gpu.upload(*x).slice(1, 0, in), gpu.upload(*weight),
                         y.slice(1, 0, out).rows(0, 9));
    gpu.download(y, *actual);
    for (int i = 0; i < 11 * (out + spare); ++i) {
      const int row = i / (out + spare), column = i % (out + spare);
      const double got = testing::element(*actual, i);
      if (row >= 9 || column >= out) {
        ASSERT_TRUE(std::isnan(got)) << "row " << row << ", column " << column;
      } else {
        testing::set_element(*inside, row * out + column, static_cast<float>(got));
      }
    }
    expect_near(*inside, expected_of(*narrow, *weight));
  }
}

TEST(SwappedLinear, SplitsFillTheMultiprocessors) {
  const auto clusters_of = [](int blocks) { return 132 / blocks; };
  EXPECT_EQ(choose_linear_splits(5120, 45, clusters_of), 3);
  EXPECT_EQ(choose_linear_splits(2880, 64, clusters_of), 5);
  EXPECT_EQ(choose_linear_splits(201088, 45, clusters_of), 1);
  EXPECT_EQ(choose_linear_splits(128, 45, clusters_of), 8);
  EXPECT_EQ(choose_linear_splits(128, 2, clusters_of), 2);
}

}  // namespace
}  // namespace rose::ops
