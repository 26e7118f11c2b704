// Against the CPU, bit for bit.
#include <gtest/gtest.h>

#include <limits>

#include "ops/quantize_weight/quantize_weight.h"
#include "ops/quantize_weight/quantize_weight_problem.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;
using namespace quantize_weight_problem;

// Zeros of either sign are told apart too: bits.
TEST(CudaQuantizeWeight, EqualsTheCpu) {
  for (const auto& [out, in] : {std::pair{1, 8}, {3, 136}, {128, 128}, {130, 40}, {257, 1000}, {1030, 2880}}) {
    const OwnedWeight from = stored_weight(out, in, 1), expected = fp8_weight(out, in), actual = fp8_weight(out, in);
    const OwnedTensor not_finite = testing::int_tensor({5});
    quantize_weight(Stream::cpu(2), *from, *expected, *not_finite);
    testing::Gpu gpu;
    Weight to = *actual;
    to.payload = gpu.like(*actual.payload);
    to.scales = gpu.like(*actual.scales);
    const Tensor count = gpu.upload(*not_finite);
    quantize_weight(gpu.stream, gpu.upload(*from), to, count);
    gpu.download(to.payload, *actual.payload);
    gpu.download(to.scales, *actual.scales);
    gpu.download(count, *not_finite);
    EXPECT_EQ(testing::bit_difference(*actual.payload, *expected.payload), "") << out << " x " << in;
    EXPECT_EQ(testing::bit_difference(*actual.scales, *expected.scales), "") << out << " x " << in;
    EXPECT_EQ(*not_finite->as<std::int32_t>(), 5);
  }
}

TEST(CudaQuantizeWeight, CountsWhatIsNotFinite) {
  const OwnedWeight from = stored_weight(300, 200, 2), to = fp8_weight(300, 200);
  testing::set_element(*from.payload, 0, std::numeric_limits<float>::infinity());
  testing::set_element(*from.payload, 1, std::numeric_limits<float>::infinity());
  testing::set_element(*from.payload, 131 * 200 + 7, -std::numeric_limits<float>::infinity());
  testing::set_element(*from.payload, 299 * 200 + 199, std::numeric_limits<float>::quiet_NaN());
  const OwnedTensor not_finite = testing::int_tensor({0});
  testing::Gpu gpu;
  const Tensor count = gpu.upload(*not_finite);
  quantize_weight(gpu.stream, gpu.upload(*from), gpu.upload(*to), count);
  gpu.download(count, *not_finite);
  EXPECT_EQ(*not_finite->as<std::int32_t>(), 4);
}

}  // namespace
}  // namespace rose::ops
