// Against the reference with an f32 output. The residual is one f32 addition and one rounding: equal bits. The output
// is rounded to bf16 (2^-8 of itself, at most); before that the kernel's scale errs by the f32 sum of squares (hidden
// positive terms in a tree of depth 18: 18 * 2^-24, half of it after the root) and rsqrt (2^-22), and two products are
// rounded: under 2^-20 together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

struct Case {
  const char* name;
  int rows, hidden;
};

class CudaAddRmsNorm : public ::testing::TestWithParam<Case> {};

const testing::Bound kRounded = testing::bound(1e-37, 1.01 * 0x1p-8 + 0x1p-20);

TEST_P(CudaAddRmsNorm, EqualsTheReference) {
  const auto [name, rows, hidden] = GetParam();
  const float epsilon = 0.25f;  // large, so that a misplaced one shows
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const bool adds : {true, false}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + (adds ? " with delta" : " alone"));
      const OwnedTensor delta = testing::random_tensor(DType::kBf16, {rows, hidden}, 2);
      const OwnedTensor residual = testing::random_tensor(dtype, {rows, hidden}, 3, 3);
      const OwnedTensor weight = testing::random_tensor(DType::kBf16, {hidden}, 4, 2);
      Gpu gpu;
      const Tensor device_residual = gpu.upload(*residual);
      const OwnedTensor actual(DType::kBf16, {rows, hidden}), actual_residual(dtype, {rows, hidden});
      const Tensor out = gpu.like(*actual);
      cuda::add_rms_norm(gpu.stream, adds ? gpu.upload(*delta) : Tensor(), device_residual, gpu.upload(*weight),
                         epsilon, out);
      gpu.download(out, *actual);
      gpu.download(device_residual, *actual_residual);
      const OwnedTensor expected(DType::kF32, {rows, hidden});
      ref::reduce_add_rms_norm(Stream::cpu(2), *make_solo_communicator(), adds ? *delta : Tensor(), *residual, *weight,
                               epsilon, *expected);
      EXPECT_EQ(testing::bit_difference(*actual_residual, *residual), "");
      EXPECT_EQ(testing::difference(*actual, *expected, kRounded), "");
    }
  }
}

// The quantized rows are those of the bf16 output beside them.
TEST_P(CudaAddRmsNorm, QuantizesItsOutputInGroupsOf128Columns) {
  const auto [name, rows, hidden] = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const OwnedTensor delta = testing::random_tensor(DType::kBf16, {rows, hidden}, 2);
    const OwnedTensor residual = testing::random_tensor(dtype, {rows, hidden}, 3, 3);
    // Weights of very different sizes, so that every group has its own scale; one group of zeros.
    const OwnedTensor weight = testing::random_tensor(DType::kBf16, {hidden}, 4);
    for (int c = 0; c < hidden; ++c) {
      weight->as<Bf16>()[c] = to_bf16(
          c / 128 == 1 ? 0.f : std::ldexp(to_float(weight->as<Bf16>()[c]), static_cast<int>(c / 128 * 7 % 40) - 20));
    }
    const int groups = (hidden + 127) / 128, stride = rows + 3;
    const OwnedTensor plain(DType::kBf16, {rows, hidden}), actual(DType::kBf16, {rows, hidden});
    const OwnedTensor q(DType::kF8E4M3, {rows, hidden}), scales(DType::kF32, {groups, stride});
    Gpu gpu;
    const Tensor device_delta = gpu.upload(*delta), device_weight = gpu.upload(*weight);
    const Tensor out = gpu.like(*actual), device_q = gpu.like(*q), device_scales = gpu.like(*scales);
    cuda::add_rms_norm(gpu.stream, device_delta, gpu.upload(*residual), device_weight, 1e-5f, out);
    gpu.download(out, *plain);
    rose::cuda::fill(0, out.raw(), 0xff, out.bytes());
    cuda::add_rms_norm(gpu.stream, device_delta, gpu.upload(*residual), device_weight, 1e-5f, out,
                       {device_q, device_scales});
    gpu.download(out, *actual);
    gpu.download(device_q, *q);
    gpu.download(device_scales, *scales);
    EXPECT_EQ(testing::bit_difference(*actual, *plain), "");
    for (int g = 0; g < groups; ++g) {
      for (int r = 0; r < stride; ++r) {
        const float scale = scales->row<float>(g)[r];
        if (r >= rows) {
          ASSERT_TRUE(std::isnan(scale)) << "the scale of row " << r << " of " << rows << " is not the kernel's";
          continue;
        }
        float largest = 0;
        const int end = std::min(hidden, (g + 1) * 128);
        for (int c = g * 128; c < end; ++c) largest = std::max(largest, std::fabs(to_float(actual->row<Bf16>(r)[c])));
        ASSERT_EQ(scale, largest > 0 ? largest / 448.f : 1.f) << "row " << r << ", group " << g;
        for (int c = g * 128; c < end; ++c) {
          const F8E4M3 want = to_f8e4m3(to_float(actual->row<Bf16>(r)[c]) * (1.f / scale));
          ASSERT_EQ(q->row<F8E4M3>(r)[c].bits, want.bits) << "row " << r << ", column " << c;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAddRmsNorm,
                         ::testing::Values(Case{"no_rows", 0, 64}, Case{"narrowest", 3, 8}, Case{"odd_threads", 2, 24},
                                           Case{"one_warp", 5, 256}, Case{"past_a_warp", 5, 264},
                                           Case{"one_row", 1, 2880}, Case{"published_width", 37, 2880},
                                           Case{"widest", 3, 8192}, Case{"nearly_widest", 3, 8184}),
                         [](const auto& info) { return info.param.name; });

TEST(CudaAddRmsNorm, WorksOnColumnsOfWiderTensors) {
  const OwnedTensor delta = testing::random_tensor(DType::kBf16, {5, 128}, 2);
  const OwnedTensor residual = testing::random_tensor(DType::kF32, {5, 96}, 3);
  const OwnedTensor weight = testing::random_tensor(DType::kBf16, {72}, 4);
  const OwnedTensor actual(DType::kBf16, {5, 80}), actual_residual(DType::kF32, {5, 96}),
      expected(DType::kF32, {5, 80});
  Gpu gpu;
  const Tensor out = gpu.like(*actual), device_residual = gpu.upload(*residual);
  cuda::add_rms_norm(gpu.stream, gpu.upload(*delta).slice(1, 32, 104), device_residual.slice(1, 8, 80),
                     gpu.upload(*weight), 1e-5f, out.slice(1, 0, 72));
  gpu.download(out, *actual);
  gpu.download(device_residual, *actual_residual);
  ref::reduce_add_rms_norm(Stream::cpu(1), *make_solo_communicator(), delta->slice(1, 32, 104),
                           residual->slice(1, 8, 80), *weight, 1e-5f, expected->slice(1, 0, 72));
  EXPECT_EQ(testing::bit_difference(*actual_residual, *residual), "");
  EXPECT_EQ(testing::difference(*actual, *expected, kRounded), "");  // the poison of both outputs is NaN
}

TEST(CudaAddRmsNorm, GroupsTooSmallForAScaleBecomeZeros) {
  const OwnedTensor residual = testing::random_tensor(DType::kF32, {1, 128}, 3, 1e-37f);
  const OwnedTensor weight(DType::kBf16, {128});
  for (int c = 0; c < 128; ++c) weight->as<Bf16>()[c] = to_bf16(1);
  residual->as<float>()[5] = 0;  // zero times an infinite reciprocal would be NaN
  const OwnedTensor q(DType::kF8E4M3, {1, 128}), scales(DType::kF32, {1, 1}), y(DType::kBf16, {1, 128});
  Gpu gpu;
  const Tensor device_q = gpu.like(*q), device_scales = gpu.like(*scales);
  cuda::add_rms_norm(gpu.stream, Tensor(), gpu.upload(*residual), gpu.upload(*weight), 1e-5f, gpu.like(*y),
                     {device_q, device_scales});
  gpu.download(device_q, *q);
  for (int c = 0; c < 128; ++c) EXPECT_EQ(q->as<F8E4M3>()[c].bits & 0x7f, 0) << c;
}

}  // namespace
}  // namespace rose::ops
