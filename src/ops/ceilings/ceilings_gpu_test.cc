#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/ceilings/ceilings_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::element;
using testing::Gpu;
using testing::OwnedTensor;

constexpr std::int64_t kCount = 100003;  // no multiple of anything

// Uniform in [-size, size): all within, the mean within five deviations (size / sqrt(3 n)) of 0, both ends approached.
TEST(FillRandom, IsUniformAndRepeatable) {
  Gpu gpu;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const OwnedTensor host(dtype, {kCount}), again(dtype, {kCount}), other(dtype, {kCount});
    const Tensor device = gpu.like(*host);
    cuda::fill_random(gpu.stream, device, 1, 3);
    gpu.download(device, *host);
    cuda::fill_random(gpu.stream, device, 1, 3);
    gpu.download(device, *again);
    cuda::fill_random(gpu.stream, device, 2, 3);
    gpu.download(device, *other);
    EXPECT_EQ(testing::bit_difference(*host, *again), "");
    EXPECT_NE(testing::bit_difference(*host, *other), "");
    double sum = 0, least = 0, most = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double value = element(*host, i);
      ASSERT_LE(std::fabs(value), 3);
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    EXPECT_LT(std::fabs(sum / kCount), 5 * 3 / std::sqrt(3.0 * kCount));
    EXPECT_LT(least, -2.98);
    EXPECT_GT(most, 2.98);
  }
}

TEST(FillRandom, BytesCoverTheirRangeAndNoMore) {
  Gpu gpu;
  const OwnedTensor host(DType::kU8, {kCount});
  const Tensor device = gpu.like(*host);
  cuda::fill_random_bytes(gpu.stream, device, 1, 116, 122);
  gpu.download(device, *host);
  std::vector<int> count(256, 0);
  for (std::int64_t i = 0; i < kCount; ++i) ++count[host->as<std::uint8_t>()[i]];
  const double expected = kCount / 7.0;
  for (int value = 0; value < 256; ++value) {
    const bool inside = value >= 116 && value <= 122;
    EXPECT_NEAR(count[static_cast<std::size_t>(value)], inside ? expected : 0, inside ? 6 * std::sqrt(expected) : 0);
  }
}

TEST(Ceilings, CopyCopiesEveryByte) {
  Gpu gpu;
  for (const std::int64_t vectors : {1, 7, 100003}) {
    const OwnedTensor host(DType::kU8, {16 * vectors}), copied(DType::kU8, {16 * vectors});
    const Tensor from = gpu.like(*host), to = gpu.like(*host);
    cuda::fill_random_bytes(gpu.stream, from, 1, 0, 255);
    cuda::copy_all(gpu.stream, from, to);
    gpu.download(from, *host);
    gpu.download(to, *copied);
    EXPECT_EQ(testing::bit_difference(*copied, *host), "");
  }
}

// Eight times the iterations give eight times the sums. The tensor cores cut what lies below 2^-13 of a sum (e4m3) in
// each of 128 additions, so a sum may be off by 1.6 %; a tenth of the sums' own size tells it from a tile left out.
TEST(Ceilings, MatrixKernelMultiplies) {
  Gpu gpu;
  for (const auto format : {cuda::MatrixFormat::kBf16, cuda::MatrixFormat::kE4m3}) {
    const OwnedTensor few(DType::kF32, {cuda::matrix_sink_elements(gpu.stream)}),
        many(DType::kF32, {cuda::matrix_sink_elements(gpu.stream)});
    const Tensor sink = gpu.like(*few);
    const double flops = cuda::multiply(gpu.stream, format, 4, sink);  // every tile once
    gpu.download(sink, *few);
    EXPECT_DOUBLE_EQ(cuda::multiply(gpu.stream, format, 32, sink), 8 * flops);
    gpu.download(sink, *many);
    double squares = 0;
    for (std::int64_t i = 0; i < few->elements(); ++i) squares += element(*few, i) * element(*few, i);
    const double size = std::sqrt(squares / static_cast<double>(few->elements()));
    EXPECT_GT(size, 0.1);
    for (std::int64_t i = 0; i < few->elements(); ++i) {
      ASSERT_NEAR(element(*many, i), 8 * element(*few, i), 0.1 * 8 * size) << i;
    }
  }
}

}  // namespace
}  // namespace rose::ops
