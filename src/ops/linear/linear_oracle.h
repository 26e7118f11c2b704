// What the GPU tests of linear compare with: products in f64, and how far f32 sums on tensor cores may lie from them.
//
// An instruction in bf16 adds 17 terms, each cut at 2^-24 of the largest at worst twice, and rounds once; the largest
// is a product (at most 1 here) or a sum over a contiguous range of `in`, which the prefix sums bound; then at most
// eight partial sums and the bias are added in f32. FP8 instructions keep 13 bits below the largest term: 33 terms in
// each of the four of a step; the steps are added in f32.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/testing/random.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::linear_oracle {

struct Expected {
  std::vector<double> values, bounds;  // [rows, out]; bounds without the rounding to y
};

inline std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(testing::element(tensor, static_cast<std::int64_t>(i)));
  }
  return values;
}

inline Expected expected_of(const Tensor& x, const Weight& weight) {
  const std::vector<float> a = floats_of(x), b = floats_of(weight.payload);
  const std::int64_t in = weight.in;
  Expected expected;
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    for (std::int64_t feature = 0; feature < weight.out; ++feature) {
      double sum = 0, low = 0, high = 0;
      for (std::int64_t k = 0; k < in; ++k) {
        sum += static_cast<double>(a[static_cast<std::size_t>(row * in + k)]) *
               static_cast<double>(b[static_cast<std::size_t>(feature * in + k)]);
        low = std::min(low, sum);
        high = std::max(high, sum);
      }
      const double bias = weight.bias.empty() ? 0 : testing::element(weight.bias, feature);
      const double instructions = std::ceil(static_cast<double>(in) / 16);
      expected.values.push_back(sum + bias);
      expected.bounds.push_back((instructions * 36 + 10) * std::exp2(-24) * (high - low + 17 + std::fabs(bias)));
    }
  }
  return expected;
}

inline void expect_near(const Tensor& got, const Expected& expected) {
  ASSERT_EQ(static_cast<std::size_t>(got.elements()), expected.values.size());
  const double rounding = got.dtype() == DType::kF32 ? std::exp2(-24) : std::exp2(-8);
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double want = expected.values[at], bound = expected.bounds[at];
    ASSERT_NEAR(testing::element(got, i), want, bound + (std::fabs(want) + bound) * rounding)
        << "row " << i / got.size(1) << ", column " << i % got.size(1);
  }
}

inline Expected expected_fp8(const Tensor& q, const Tensor& scales, const Weight& weight) {
  const std::vector<float> a = floats_of(q), b = floats_of(weight.payload);
  const std::int64_t in = weight.in, groups = (in + 127) / 128;
  Expected expected;
  for (std::int64_t row = 0; row < q.size(0); ++row) {
    for (std::int64_t feature = 0; feature < weight.out; ++feature) {
      double sum = weight.bias.empty() ? 0 : testing::element(weight.bias, feature), bound = 0, sizes = std::fabs(sum);
      for (std::int64_t group = 0; group < groups; ++group) {
        double part = 0, low = 0, high = 0, largest = 0;
        for (std::int64_t k = group * 128; k < std::min(in, group * 128 + 128); ++k) {
          const double product = static_cast<double>(a[static_cast<std::size_t>(row * in + k)]) *
                                 static_cast<double>(b[static_cast<std::size_t>(feature * in + k)]);
          part += product;
          low = std::min(low, part), high = std::max(high, part), largest = std::max(largest, std::fabs(product));
        }
        const double scale = static_cast<double>(scales.row<float>(group)[row]) *
                             static_cast<double>(weight.scales.row<float>(feature / 128)[group]);
        sum += part * scale;
        sizes += std::fabs(part * scale);
        bound += 4 * 34 * std::exp2(-13) * std::max(high - low, largest) * std::fabs(scale);
      }
      expected.values.push_back(sum);
      expected.bounds.push_back(bound + sizes * static_cast<double>(groups + 12) * std::exp2(-23));
    }
  }
  return expected;
}

}  // namespace rose::ops::linear_oracle
