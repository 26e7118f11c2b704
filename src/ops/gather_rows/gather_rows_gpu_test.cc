// Against the reference, bit for bit: nothing is rounded.
#include <gtest/gtest.h>

#include <vector>

#include "ops/gather_rows/gather_rows.h"
#include "ops/gather_rows/gather_rows_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

struct Case {
  const char* name;
  DType dtype;
  int sources, width, count;
};

class CudaGatherRows : public ::testing::TestWithParam<Case> {};

TEST_P(CudaGatherRows, EqualsTheReference) {
  const Case c = GetParam();
  const OwnedTensor x = testing::random_tensor(c.dtype, {c.sources, c.width}, 1);
  std::vector<std::int32_t> picked;
  for (int i = 0; i < c.count; ++i) {
    picked.push_back(static_cast<std::int32_t>(random_bits(2, static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(c.sources)));
  }
  if (c.count > 1) picked[1] = c.sources - 1;
  const OwnedTensor rows = testing::int_tensor(picked);
  const OwnedTensor expected(c.dtype, {c.count, c.width}), actual(c.dtype, {c.count, c.width});
  ref::gather_rows(Stream::cpu(1), *x, *rows, *expected);
  Gpu gpu;
  const Tensor out = gpu.like(*actual);
  cuda::gather_rows(gpu.stream, gpu.upload(*x), gpu.upload(*rows), out);
  gpu.download(out, *actual);
  EXPECT_EQ(testing::bit_difference(*actual, *expected), "");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaGatherRows,
    ::testing::Values(Case{"nothing", DType::kBf16, 5, 64, 0}, Case{"one_row", DType::kBf16, 1, 8, 1},
                      Case{"published_width", DType::kBf16, 300, 2880, 70}, Case{"f32", DType::kF32, 20, 2880, 33},
                      Case{"logits", DType::kF32, 3, 20104, 5}, Case{"piece_edge", DType::kF32, 4, 4096, 3},
                      Case{"odd_bf16", DType::kBf16, 7, 1031, 9}, Case{"odd_f32", DType::kF32, 7, 13, 9}),
    [](const auto& info) { return info.param.name; });

TEST(CudaGatherRows, WorksOnColumnsOfWiderTensors) {
  Gpu gpu;
  for (const std::int64_t begin : {64, 3}) {  // aligned, and not
    const OwnedTensor x = testing::random_tensor(DType::kBf16, {6, 200}, 1);
    const OwnedTensor rows = testing::int_tensor({5, 0, 3});
    const OwnedTensor expected(DType::kBf16, {3, 160}), actual(DType::kBf16, {3, 160});
    ref::gather_rows(Stream::cpu(1), x->slice(1, begin, begin + 96), *rows, expected->slice(1, 32, 128));
    const Tensor out = gpu.like(*actual);
    cuda::gather_rows(gpu.stream, gpu.upload(*x).slice(1, begin, begin + 96), gpu.upload(*rows), out.slice(1, 32, 128));
    gpu.download(out, *actual);
    EXPECT_EQ(testing::bit_difference(*actual, *expected), "") << begin;  // poison beside the columns included
  }
}

TEST(CudaGatherRows, ARowThatDoesNotExistGivesZeros) {
  const OwnedTensor x = testing::random_tensor(DType::kBf16, {5, 64}, 1);
  const OwnedTensor expected(DType::kBf16, {3, 64}, 0), actual(DType::kBf16, {3, 64});
  ref::gather_rows(Stream::cpu(1), *x, *testing::int_tensor({4}), expected->rows(1, 2));
  Gpu gpu;
  const Tensor out = gpu.like(*actual);
  cuda::gather_rows(gpu.stream, gpu.upload(*x), gpu.upload(*testing::int_tensor({-1, 4, 5})), out);
  gpu.download(out, *actual);
  EXPECT_EQ(testing::bit_difference(*actual, *expected), "");
}

}  // namespace
}  // namespace rose::ops
