#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/linear/linear_quantizing_cuda.h"
#include "ops/linear/linear_x86.h"
#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp4};

struct Case {
  std::string name;
  WeightFormat format;
  DType x;
  DType y;
  std::int64_t rows, in, out;
};

// Summing n products in any order errs by at most n * eps/2 * sum |w x| to first order (each addition and product
// rounds once); eps = 2^-23. Rounding the result adds half an ulp of y's dtype.
testing::Bound linear_bound(const Case& c, const OwnedTensor& x, const Weight& weight) {
  std::vector<double> sizes(static_cast<std::size_t>(c.rows * c.out));
  std::vector<float> w(static_cast<std::size_t>(c.in));
  for (std::int64_t o = 0; o < c.out; ++o) {
    decode_row(weight, 0, o, w.data());
    for (std::int64_t r = 0; r < c.rows; ++r) {
      double& sum = sizes[static_cast<std::size_t>(r * c.out + o)];
      for (std::int64_t i = 0; i < c.in; ++i) {
        sum += std::fabs(static_cast<double>(w[static_cast<std::size_t>(i)]) * testing::element(*x, r * c.in + i));
      }
    }
  }
  const double steps = static_cast<double>(c.in + 2) * std::ldexp(1.0, -24);
  const double rounding = c.y == DType::kF32 ? std::ldexp(1.0, -23) : std::ldexp(1.0, -8);
  return [=](std::int64_t i, double want) {
    return steps * (sizes[static_cast<std::size_t>(i)] + 1) + rounding * std::fabs(want);
  };
}

class Linear : public ::testing::TestWithParam<Case> {};

TEST_P(Linear, MatchesTheReferenceWithinTheSummationBound) {
  const Case& c = GetParam();
  const Stream stream = Stream::cpu(2);
  const OwnedWeight weight = testing::random_weight(c.format, {.out = c.out, .in = c.in}, 1);
  const OwnedTensor x = testing::random_tensor(c.x, {c.rows, c.in}, 2, 3);
  const OwnedTensor got(c.y, {c.rows, c.out});
  const OwnedTensor want(c.y, {c.rows, c.out});
  linear(stream, *x, *weight, *got);
  ref::linear(stream, *x, *weight, *want);
  EXPECT_EQ(testing::difference(*got, *want, linear_bound(c, x, *weight)), "");
}

std::vector<Case> cases() {
  constexpr DType kF32 = DType::kF32;
  std::vector<Case> all;
  for (const WeightFormat format : kFormats) {
    const std::string name(weight_format_name(format));
    all.push_back({name + "_no_rows", format, kF32, kF32, 0, 64, 5});
    all.push_back({name + "_one_group", format, kF32, kF32, 1, 32, 1});
    all.push_back({name + "_one_row", format, kF32, kF32, 1, 2880, 37});
    all.push_back({name + "_few_rows", format, kF32, kF32, 3, 416, 66});
    all.push_back({name + "_odd_tile", format, kF32, kF32, 11, 832, 131});
    all.push_back({name + "_over_a_block", format, kF32, kF32, 55, 1600, 67});
    all.push_back({name + "_bf16_in_out", format, DType::kBf16, DType::kBf16, 7, 192, 34});
  }
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8}) {
    const std::string name(weight_format_name(format));
    for (const std::int64_t in : {1, 31, 33, 127, 129, 1000}) {
      all.push_back({name + "_width_" + std::to_string(in), format, kF32, kF32, 2, in, 9});
      all.push_back({name + "_width_" + std::to_string(in) + "_rows", format, kF32, kF32, 9, in, 130});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, Linear, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

class LinearFormat : public ::testing::TestWithParam<WeightFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, LinearFormat, ::testing::ValuesIn(kFormats),
                         [](const auto& f) { return std::string(weight_format_name(f.param)); });

TEST_P(LinearFormat, ARowIsTheSameBitsAloneInAnyBatchAndWithAnyThreads) {
  const std::int64_t in = 1056, out = 90;
  const OwnedWeight weight = testing::random_weight(GetParam(), {.out = out, .in = in}, 3);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {100, in}, 4);
  const OwnedTensor whole(DType::kF32, {100, out});
  linear(Stream::cpu(1), *x, *weight, *whole);
  for (const std::int64_t rows : {1, 2, 3, 4, 6, 7, 13, 49}) {
    const OwnedTensor part(DType::kF32, {rows, out});
    linear(Stream::cpu(3), x->rows(100 - rows, 100), *weight, *part);
    EXPECT_EQ(testing::bit_difference(*part, whole->rows(100 - rows, 100)), "") << rows << " rows";
  }
}

// A unit vector picks one column: the decoded weights themselves, exactly.
TEST_P(LinearFormat, UnitVectorsReadBackTheExactWeights) {
  const std::int64_t in = 160, out = 6;
  const OwnedWeight weight = testing::random_weight(GetParam(), {.out = out, .in = in, .bias = false}, 5);
  const OwnedTensor x(DType::kF32, {in, in}, 0);
  for (std::int64_t i = 0; i < in; ++i) x->row<float>(i)[i] = 1;
  const OwnedTensor y(DType::kF32, {in, out});
  linear(Stream::cpu(2), *x, *weight, *y);
  std::vector<float> row(static_cast<std::size_t>(in));
  for (std::int64_t o = 0; o < out; ++o) {
    decode_row(*weight, 0, o, row.data());
    for (std::int64_t i = 0; i < in; ++i)
      EXPECT_EQ(y->row<float>(i)[o], row[static_cast<std::size_t>(i)]) << o << " " << i;
  }
}

TEST_P(LinearFormat, ANanInOneRowStaysInThatRow) {
  const std::int64_t in = 96, out = 10;
  const OwnedWeight weight = testing::random_weight(GetParam(), {.out = out, .in = in}, 6);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {8, in}, 7);
  x->row<float>(3)[17] = std::numeric_limits<float>::quiet_NaN();
  const OwnedTensor y(DType::kF32, {8, out});
  linear(Stream::cpu(2), *x, *weight, *y);
  for (std::int64_t r = 0; r < 8; ++r) {
    for (std::int64_t o = 0; o < out; ++o) EXPECT_EQ(std::isnan(y->row<float>(r)[o]), r == 3) << r << " " << o;
  }
}

TEST(LinearMxfp4, ByteF1WithScale126IsAQuarterAndMinusThree) {
  const OwnedWeight weight = testing::random_weight(WeightFormat::kMxfp4, {.out = 1, .in = 32, .bias = false}, 0);
  std::fill_n(weight.payload->as<std::uint8_t>(), 16, std::uint8_t{0xF1});
  weight.scales->as<std::uint8_t>()[0] = 126;
  const OwnedTensor x(DType::kF32, {2, 32}, 0);
  x->row<float>(0)[0] = 1;  // even element
  x->row<float>(1)[1] = 1;  // odd element
  const OwnedTensor y(DType::kF32, {2, 1});
  linear(Stream::cpu(1), *x, *weight, *y);
  EXPECT_EQ(y->as<float>()[0], 0.25f);
  EXPECT_EQ(y->as<float>()[1], -3.0f);
}

TEST(LinearMxfp4, EveryCodeWithEveryScaleIsExact) {
  constexpr double kCodes[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const OwnedWeight weight = testing::random_weight(WeightFormat::kMxfp4, {.out = 255, .in = 32, .bias = false}, 0);
  for (int scale = 0; scale < 255; ++scale) {
    weight.scales->as<std::uint8_t>()[scale] = static_cast<std::uint8_t>(scale);
    for (int i = 0; i < 16; ++i) {  // even elements hold code i, odd ones code 15 - i
      weight.payload->as<std::uint8_t>()[scale * 16 + i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
    }
  }
  const OwnedTensor x(DType::kF32, {32, 32}, 0);
  for (int i = 0; i < 32; ++i) x->row<float>(i)[i] = 1;
  const OwnedTensor y(DType::kF32, {32, 255});
  linear(Stream::cpu(1), *x, *weight, *y);
  for (int i = 0; i < 32; ++i) {
    for (int scale = 0; scale < 255; ++scale) {
      const auto want = static_cast<float>(std::ldexp(kCodes[i % 2 == 0 ? i / 2 : 15 - i / 2], scale - 127));
      // Two codes of the top scales exceed a float, and so poison the whole dot product: 0 * inf.
      if (scale >= 253) continue;
      EXPECT_EQ(y->row<float>(i)[scale], want) << "element " << i << " scale " << scale;
    }
  }
}

TEST(LinearFp8, EveryFiniteCodeIsExact) {
  const OwnedWeight weight = testing::random_weight(WeightFormat::kFp8, {.out = 8, .in = 32, .bias = false}, 0);
  weight.scales->as<float>()[0] = 0.5f;
  for (int code = 0; code < 256; ++code) {
    weight.payload->as<F8E4M3>()[code].bits = static_cast<std::uint8_t>((code & 0x7f) == 0x7f ? 0 : code);
  }
  const OwnedTensor x(DType::kF32, {32, 32}, 0);
  for (int i = 0; i < 32; ++i) x->row<float>(i)[i] = 1;
  const OwnedTensor y(DType::kF32, {32, 8});
  linear(Stream::cpu(1), *x, *weight, *y);
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(y->row<float>(code % 32)[code / 32], to_float(weight.payload->as<F8E4M3>()[code]) * 0.5f) << code;
  }
}

TEST(LinearDeathTest, NamesTheTensorOfAWrongShape) {
  const OwnedWeight weight = testing::random_weight(WeightFormat::kBf16, {.out = 4, .in = 8}, 0);
  const OwnedTensor x(DType::kF32, {2, 9});
  const OwnedTensor y(DType::kF32, {2, 4});
  EXPECT_DEATH(linear(Stream::cpu(1), *x, *weight, *y), "linear: x");
}

TEST(LinearScratch, OnlyFp8OnAGpuNeedsSome) {
  for (const WeightFormat format : kFormats) EXPECT_EQ(linear_scratch_bytes(Stream::cpu(1), format, 100, 2880), 0u);
  // Room for the most rows and inputs is room for any fewer of them.
  for (const std::int64_t rows : {1, 3, 4, 5, 8191}) {
    for (const std::int64_t columns : {16, 128, 144, 2864}) {
      EXPECT_LE(quantized_bytes(rows, columns).total(), quantized_bytes(rows + 1, columns).total());
      EXPECT_LE(quantized_bytes(rows, columns).total(), quantized_bytes(rows, columns + 16).total());
      EXPECT_EQ(quantized_bytes(rows, columns).q % 16, 0u);
      EXPECT_EQ(quantized_bytes(rows, columns).scales_stride % 4, 0);
      EXPECT_GE(quantized_bytes(rows, columns).scales_stride, rows);
    }
  }
}

}  // namespace
}  // namespace rose::ops
