// The kernels for decoding batches against f64 (linear_oracle.h has the bounds), and a row among others against it
// alone, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/linear/linear_batch_cuda.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_oracle.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using namespace linear_oracle;
constexpr DType kBf16 = DType::kBf16;

struct Case {
  int rows, out, in;
  bool bias;
  int features;
};

class BatchLinear : public ::testing::TestWithParam<Case> {};

TEST_P(BatchLinear, EqualsTheReference) {
  const Case c = GetParam();
  const auto x = testing::random_tensor(kBf16, {c.rows, c.in}, 1);
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = c.out, .in = c.in, .bias = c.bias}, 2);
  const OwnedTensor actual(kBf16, {c.rows, c.out});
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual);
  cuda::linear_batch(gpu.stream, gpu.upload(*x), gpu.upload(*weight), y, c.features);
  gpu.download(y, *actual);
  expect_near(*actual, expected_of(*x, *weight));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BatchLinear,
    ::testing::Values(Case{1, 80, 128, false, 80}, Case{1, 5120, 2880, true, 80}, Case{2, 48, 72, true, 48},
                      Case{9, 2880, 4096, true, 48}, Case{15, 100, 1000, false, 48}, Case{16, 162, 2880, true, 80},
                      Case{17, 50, 200, true, 48}, Case{33, 240, 520, true, 80}, Case{63, 96, 4096, true, 48},
                      Case{64, 400, 712, false, 80}, Case{65, 82, 136, true, 80}, Case{80, 2, 2880, true, 48},
                      Case{100, 500, 520, true, 48}, Case{113, 322, 1032, true, 80}, Case{127, 160, 80, true, 80},
                      Case{128, 640, 2880, true, 80}, Case{128, 480, 2048, false, 48}),
    [](const auto& info) {
      const Case& c = info.param;
      return std::to_string(c.rows) + "x" + std::to_string(c.out) + "x" + std::to_string(c.in) + "_n" +
             std::to_string(c.features);
    });

// Alone a row has the bits that it has among any others: NaNs around it and whatever an earlier launch left behind.
TEST(BatchLinear, ARowDependsNotOnTheOthers) {
  for (const int features : {48, 80}) {
    const int in = 1032, out = 240, most = 128;
    const auto x = testing::random_tensor(kBf16, {most, in}, 3);
    const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 4);
    const OwnedTensor alone(kBf16, {most, out}), together(kBf16, {most, out});
    testing::Gpu gpu;
    const Tensor gpu_x = gpu.upload(*x), gpu_alone = gpu.like(*alone), gpu_together = gpu.like(*together);
    const Weight gpu_weight = gpu.upload(*weight);
    for (int row = 0; row < most; ++row) {
      cuda::linear_batch(gpu.stream, gpu_x.rows(row, row + 1), gpu_weight, gpu_alone.rows(row, row + 1), features);
    }
    gpu.download(gpu_alone, *alone);
    for (const int rows : {2, 8, 15, 16, 17, 48, 64, 65, 80, 96, 127, 128}) {
      cuda::linear_batch(gpu.stream, gpu_x.rows(0, rows), gpu_weight, gpu_together.rows(0, rows), features);
      gpu.download(gpu_together, *together);
      EXPECT_EQ(testing::bit_difference(together->rows(0, rows), alone->rows(0, rows)), "") << rows << " rows";
    }
    for (int i = 0; i < most * in; ++i) {
      if (i / in % 2 == 1) testing::set_element(*x, i, NAN);
    }
    cuda::linear_batch(gpu.stream, gpu.upload(*x), gpu_weight, gpu_together, features);
    gpu.download(gpu_together, *together);
    for (int row = 0; row < most; row += 2) {
      EXPECT_EQ(testing::bit_difference(together->rows(row, row + 1), alone->rows(row, row + 1)), "") << row;
    }
  }
}

// Views of wider tensors; what lies beside and below y stays as it was.
TEST(BatchLinear, ReadsAndWritesNothingBeyondItsViews) {
  const int rows = 9, out = 50, in = 136, spare = 6;
  const auto x = testing::random_tensor(kBf16, {rows, in + 24}, 5);
  for (int i = 0; i < rows * (in + 24); ++i) {
    if (i % (in + 24) >= in) testing::set_element(*x, i, NAN);
  }
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 6);
  const OwnedTensor narrow(kBf16, {rows, in}), actual(kBf16, {rows + 2, out + spare}), inside(kBf16, {rows, out});
  for (int i = 0; i < rows * in; ++i) {
    testing::set_element(*narrow, i, static_cast<float>(testing::element(*x, i / in * (in + 24) + i % in)));
  }
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual);
  cuda::linear_batch(gpu.stream, gpu.upload(*x).slice(1, 0, in), gpu.upload(*weight), y.slice(1, 0, out).rows(0, rows),
                     48);
  gpu.download(y, *actual);
  for (int i = 0; i < (rows + 2) * (out + spare); ++i) {
    const int row = i / (out + spare), column = i % (out + spare);
    const double got = testing::element(*actual, i);
    if (row >= rows || column >= out) {
      ASSERT_TRUE(std::isnan(got)) << "row " << row << ", column " << column;
    } else {
      testing::set_element(*inside, row * out + column, static_cast<float>(got));
    }
  }
  expect_near(*inside, expected_of(*narrow, *weight));
}

// At published shapes through the choice of kernels, where a reference on the CPU would take long: both round the same
// sum to bf16.
TEST(BatchLinear, PublishedShapesEqualTheTiledKernel) {
  for (const auto& [out, in] : {std::pair{5120, 2880}, std::pair{2880, 4096}}) {
    const int most = 128;
    const auto x = testing::random_tensor(kBf16, {most, in}, 5);
    const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = out, .in = in}, 6);
    const OwnedTensor tiled(kBf16, {most, out}), chosen(kBf16, {most, out});
    testing::Gpu gpu;
    const Tensor gpu_x = gpu.upload(*x), gpu_tiled = gpu.like(*tiled);
    const Weight gpu_weight = gpu.upload(*weight);
    EXPECT_GT(cuda::linear_batch_features(gpu.stream, gpu_weight), 0);
    cuda::linear_tiled(gpu.stream, gpu_x, gpu_weight, gpu_tiled, {128, 128});
    gpu.download(gpu_tiled, *tiled);
    for (const int rows : {1, 8, 9, 40, 64, 65, 100, 128}) {
      const Tensor gpu_chosen = gpu.like(*chosen);
      cuda::linear(gpu.stream, gpu_x.rows(0, rows), gpu_weight, gpu_chosen.rows(0, rows));
      gpu.download(gpu_chosen, *chosen);
      for (std::int64_t i = 0; i < std::int64_t{rows} * out; ++i) {
        const double want = testing::element(*tiled, i);
        ASSERT_NEAR(testing::element(*chosen, i), want, std::fabs(want) * std::exp2(-7) + 0.01)
            << rows << " rows of " << out << ", element " << i;
      }
    }
  }
}

TEST(BatchLinear, TilesFillTheMultiprocessorsAndRunAtOnce) {
  const auto most = [](int) { return 66; };
  EXPECT_EQ(choose_linear_batch_features(5120, 2880, 132, most), 80);
  EXPECT_EQ(choose_linear_batch_features(2880, 4096, 132, most), 48);
  EXPECT_EQ(choose_linear_batch_features(2560, 2880, 132, most), 48);
  EXPECT_EQ(choose_linear_batch_features(1280, 2880, 132, most), 0);    // too few
  EXPECT_EQ(choose_linear_batch_features(201088, 2880, 132, most), 0);  // too many
  EXPECT_EQ(choose_linear_batch_features(5120, 64, 132, most), 0);      // no two halves
  EXPECT_EQ(choose_linear_batch_features(5120, 2880, 132, [](int) { return 63; }), 0);
}

}  // namespace
}  // namespace rose::ops
