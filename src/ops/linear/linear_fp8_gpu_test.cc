// FP8 products and their quantizing against f64 (linear_oracle.h has the bounds).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "ops/linear/linear.h"
#include "ops/linear/linear_fp8_cuda.h"
#include "ops/linear/linear_oracle.h"
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
  int n = 0;  // 0: as linear_fp8 chooses
};

class LinearFp8 : public ::testing::TestWithParam<Case> {};

TEST_P(LinearFp8, EqualsTheReference) {
  const Case c = GetParam();
  const int groups = (c.in + 127) / 128, stride = (c.rows + 3) / 4 * 4 + 4;
  const auto q = testing::random_tensor(DType::kF8E4M3, {c.rows, c.in}, 1, 448);
  OwnedTensor scales(kF32, {groups, stride});
  for (int i = 0; i < groups * stride; ++i) {
    if (i % stride < c.rows) scales->as<float>()[i] = 0.5f + random_unit(7, static_cast<std::uint64_t>(i));
  }
  const auto weight = testing::random_weight(WeightFormat::kFp8, {.out = c.out, .in = c.in, .bias = c.bias}, 2);
  OwnedTensor actual(c.y, {c.rows, c.out});
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual), gpu_q = gpu.upload(*q), gpu_scales = gpu.upload(*scales);
  const cuda::QuantizedRows x{gpu_q, gpu_scales};
  const Weight gpu_weight = gpu.upload(*weight);
  if (c.n == 0) {
    cuda::linear_fp8(gpu.stream, x, gpu_weight, y);
  } else {
    cuda::linear_fp8_tiled(gpu.stream, x, gpu_weight, y, c.n);
  }
  gpu.download(y, *actual);
  expect_near(*actual, expected_fp8(*q, *scales, *weight));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearFp8,
    ::testing::Values(Case{1, 16, 128, false, kBf16}, Case{1, 5120, 2880, true, kBf16}, Case{3, 40011, 80, true, kF32},
                      Case{8, 300, 1040, true, kF32}, Case{11, 200, 512, false, kBf16}, Case{32, 129, 2880, true, kF32},
                      Case{64, 640, 272, true, kBf16}, Case{100, 2880, 400, true, kF32},
                      Case{130, 300, 256, false, kBf16}, Case{128, 18000, 144, true, kF32},
                      Case{129, 640, 2880, true, kBf16}, Case{300, 640, 640, true, kBf16, 128},
                      Case{8200, 264, 272, true, kBf16, 128}, Case{1, 8, 16, true, kBf16, 128},
                      Case{200, 333, 272, true, kBf16, 160}, Case{2500, 1000, 144, false, kF32, 160},
                      Case{300, 520, 640, true, kBf16, 160}, Case{300, 520, 640, true, kF32, 128},
                      Case{257, 968, 400, true, kBf16, 160}, Case{2100, 1608, 160, true, kBf16, 128}),
    [](const auto& info) {
      const Case& c = info.param;
      return std::to_string(c.rows) + "x" + std::to_string(c.out) + "x" + std::to_string(c.in) +
             (c.n == 0 ? "" : "_n" + std::to_string(c.n));
    });

// By the definition in quantized_rows.h, in f32: equal bits.
TEST(QuantizeRows, FollowsItsDefinition) {
  for (const auto& [rows, columns] : {std::pair{1, 8}, {3, 136}, {5, 2880}, {70, 4096}}) {
    const int groups = (columns + 127) / 128;
    const auto x = testing::random_tensor(kBf16, {rows, columns + 8}, 3);
    for (int i = 0; i < rows * (columns + 8); ++i) {  // groups of different sizes, every fifth of zeros
      const int group = i % (columns + 8) / 128 + i / (columns + 8);
      const auto value = static_cast<float>(testing::element(*x, i));
      testing::set_element(*x, i, group % 5 == 4 ? 0.f : std::ldexp(value, group * 7 % 40 - 20));
    }
    OwnedTensor q(DType::kF8E4M3, {rows, columns}), scales(kF32, {groups, rows + 3});
    testing::Gpu gpu;
    const Tensor gpu_q = gpu.like(*q), gpu_scales = gpu.like(*scales);
    cuda::quantize_rows(gpu.stream, gpu.upload(*x).slice(1, 0, columns), {gpu_q, gpu_scales});
    gpu.download(gpu_q, *q);
    gpu.download(gpu_scales, *scales);
    for (int row = 0; row < rows; ++row) {
      for (int group = 0; group < groups; ++group) {
        float largest = 0;
        const int end = std::min(columns, group * 128 + 128);
        const auto value = [&](int c) { return static_cast<float>(testing::element(*x, row * (columns + 8) + c)); };
        for (int c = group * 128; c < end; ++c) largest = std::max(largest, std::fabs(value(c)));
        const float scale = scales->row<float>(group)[row];
        ASSERT_EQ(scale, largest > 0 ? largest / 448.f : 1.f) << "row " << row << ", group " << group;
        for (int c = group * 128; c < end; ++c) {
          ASSERT_EQ(q->row<F8E4M3>(row)[c].bits, to_f8e4m3(value(c) * (1.f / scale)).bits) << row << ", " << c;
        }
      }
    }
    for (int group = 0; group < groups; ++group) {
      for (int spare = rows; spare < rows + 3; ++spare) EXPECT_TRUE(std::isnan(scales->row<float>(group)[spare]));
    }
  }
}

// What `linear` makes of a bf16 x: quantize_rows and linear_fp8, with the rounded x in scratch of just the bytes asked
// for.
TEST(LinearFp8, RoundsABf16XIntoItsScratch) {
  for (const auto& [rows, out, in, type] : {std::tuple{1, 640, 2880, kBf16},
                                            {3, 1000, 144, kF32},
                                            {64, 300, 4096, kBf16},
                                            {131, 264, 272, kF32},
                                            {1030, 640, 400, kBf16}}) {
    const auto x = testing::random_tensor(kBf16, {rows, in}, 5, 3);
    const auto weight = testing::random_weight(WeightFormat::kFp8, {.out = out, .in = in}, 6);
    OwnedTensor expected(type, {rows, out}), actual(type, {rows, out});
    testing::Gpu gpu;
    const Tensor gpu_x = gpu.upload(*x);
    const Weight gpu_weight = gpu.upload(*weight);

    const Tensor q = gpu.like(*OwnedTensor(DType::kF8E4M3, {rows, in}));
    const Tensor scales = gpu.like(*OwnedTensor(kF32, {(in + 127) / 128, (rows + 3) / 4 * 4 + 8}));
    const Tensor y = gpu.like(*expected);
    cuda::quantize_rows(gpu.stream, gpu_x, {q, scales});
    cuda::linear_fp8(gpu.stream, {q, scales}, gpu_weight, y);
    gpu.download(y, *expected);

    const auto bytes = static_cast<std::int64_t>(linear_scratch_bytes(gpu.stream, WeightFormat::kFp8, rows, in));
    const Tensor scratch = gpu.like(*OwnedTensor(DType::kU8, {bytes}));
    const Tensor through = gpu.like(*actual);
    linear(gpu.stream, gpu_x, gpu_weight, through, scratch);
    gpu.download(through, *actual);
    EXPECT_EQ(testing::bit_difference(*actual, *expected), "") << rows << " x " << out << " x " << in;
  }
}

}  // namespace
}  // namespace rose::ops
