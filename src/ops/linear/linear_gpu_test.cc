// The tiled kernel against the reference: bf16 operands are exact, f32 accumulation of `in` products of size at most 1
// errs by at most in * 2^-24 * in, and the result is rounded to bf16 (2^-9 relative).
#include <gtest/gtest.h>

#include <cmath>

#include "ops/linear/linear.h"
#include "ops/linear/linear_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

struct Case {
  int rows, out, in;
  bool bias;
  int tile_n;
};

class TiledLinear : public ::testing::TestWithParam<Case> {};

TEST_P(TiledLinear, EqualsTheReference) {
  const Case c = GetParam();
  const auto x = testing::random_tensor(DType::kBf16, {c.rows, c.in}, 1);
  const auto weight = testing::random_weight(WeightFormat::kBf16, {.out = c.out, .in = c.in, .bias = c.bias}, 2);
  testing::OwnedTensor expected(DType::kF32, {c.rows, c.out}), actual(DType::kBf16, {c.rows, c.out});
  ref::linear(Stream::cpu(8), *x, *weight, *expected);
  testing::Gpu gpu;
  const Tensor y = gpu.like(*actual);
  cuda::linear_tiled(gpu.stream, gpu.upload(*x), gpu.upload(*weight), y, {128, c.tile_n});
  gpu.download(y, *actual);
  for (std::int64_t i = 0; i < actual->elements(); ++i) {
    const double want = testing::element(*expected, i);
    const double bound = std::fabs(want) * std::exp2(-8) + c.in * std::exp2(-24) * c.in;
    ASSERT_NEAR(testing::element(*actual, i), want, bound) << "row " << i / c.out << ", column " << i % c.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TiledLinear,
                         ::testing::Values(Case{1, 128, 64, false, 128}, Case{128, 128, 64, true, 128},
                                           Case{129, 320, 192, true, 128}, Case{300, 512, 2880, true, 256},
                                           Case{200, 264, 136, true, 192}, Case{257, 2880, 256, false, 192},
                                           Case{500, 640, 320, true, 256}, Case{129, 328, 192, true, 160},
                                           Case{600, 1000, 520, true, 160}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return std::to_string(c.rows) + "x" + std::to_string(c.out) + "x" + std::to_string(c.in) +
                                  "_n" + std::to_string(c.tile_n);
                         });

}  // namespace
}  // namespace rose::ops
