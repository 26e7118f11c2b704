// Against the reference, bit for bit: nothing is rounded.
#include <gtest/gtest.h>

#include <vector>

#include "ops/embed/embed.h"
#include "ops/embed/embed_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

OwnedTensor random_tokens(int rows, int vocabulary) {
  std::vector<std::int32_t> tokens;
  for (int r = 0; r < rows; ++r) {
    tokens.push_back(static_cast<std::int32_t>(random_bits(3, static_cast<std::uint64_t>(r)) %
                                               static_cast<std::uint64_t>(vocabulary)));
  }
  if (rows > 1) tokens[1] = vocabulary - 1;
  return testing::int_tensor(tokens);
}

struct Case {
  const char* name;
  int rows, vocabulary, hidden;
};

class CudaEmbed : public ::testing::TestWithParam<Case> {};

TEST_P(CudaEmbed, EqualsTheReference) {
  const Case c = GetParam();
  const OwnedTensor embedding = testing::random_tensor(DType::kBf16, {c.vocabulary, c.hidden}, 1);
  const OwnedTensor tokens = random_tokens(c.rows, c.vocabulary);
  Gpu gpu;
  const Tensor device_tokens = gpu.upload(*tokens), device_embedding = gpu.upload(*embedding);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const OwnedTensor expected(dtype, {c.rows, c.hidden}), actual(dtype, {c.rows, c.hidden});
    ref::embed(Stream::cpu(2), *tokens, *embedding, *expected);
    const Tensor out = gpu.like(*actual);
    cuda::embed(gpu.stream, device_tokens, device_embedding, out);
    gpu.download(out, *actual);
    EXPECT_EQ(testing::bit_difference(*actual, *expected), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaEmbed,
                         ::testing::Values(Case{"no_rows", 0, 5, 64}, Case{"one_row", 1, 7, 8},
                                           Case{"published_width", 37, 501, 2880}, Case{"widest", 3, 11, 8192}),
                         [](const auto& info) { return info.param.name; });

TEST(CudaEmbed, ATokenOutsideTheVocabularyGivesZeros) {
  const OwnedTensor embedding = testing::random_tensor(DType::kBf16, {5, 64}, 1);
  const OwnedTensor expected(DType::kBf16, {4, 64}, 0), actual(DType::kBf16, {4, 64});
  ref::embed(Stream::cpu(1), *testing::int_tensor({4}), *embedding, expected->rows(1, 2));
  Gpu gpu;
  const Tensor out = gpu.like(*actual);
  cuda::embed(gpu.stream, gpu.upload(*testing::int_tensor({-1, 4, 5, 2000000000})), gpu.upload(*embedding), out);
  gpu.download(out, *actual);
  EXPECT_EQ(testing::bit_difference(*actual, *expected), "");
}

// Half of the columns of a wider output: what lies beside them keeps its poison.
TEST(CudaEmbed, WritesItsColumnsAlone) {
  const OwnedTensor embedding = testing::random_tensor(DType::kBf16, {5, 64}, 1);
  const OwnedTensor tokens = testing::int_tensor({3, 0, 4});
  const OwnedTensor expected(DType::kF32, {3, 128}), actual(DType::kF32, {3, 128});
  ref::embed(Stream::cpu(1), *tokens, *embedding, expected->slice(1, 32, 96));
  Gpu gpu;
  const Tensor out = gpu.like(*actual);
  cuda::embed(gpu.stream, gpu.upload(*tokens), gpu.upload(*embedding), out.slice(1, 32, 96));
  gpu.download(out, *actual);
  EXPECT_EQ(testing::bit_difference(*actual, *expected), "");
}

TEST(CudaResolveTokens, EqualsTheReference) {
  for (const int rows : {0, 1, 256, 700}) {
    std::vector<std::int32_t> sources, tokens;
    for (int r = 0; r < rows; ++r) {
      sources.push_back(static_cast<std::int32_t>(random_bits(5, static_cast<std::uint64_t>(r)) % 42) - 2);
      tokens.push_back(-100 - r);
    }
    if (rows > 0) sources[0] = 39;
    const OwnedTensor from = testing::int_tensor(sources), expected = testing::int_tensor(tokens);
    const OwnedTensor last = random_tokens(40, 201088);
    Gpu gpu;
    const Tensor device_tokens = gpu.upload(*expected);
    const OwnedTensor actual(DType::kI32, {rows});
    cuda::resolve_tokens(gpu.stream, gpu.upload(*from), gpu.upload(*last), device_tokens);
    gpu.download(device_tokens, *actual);
    ref::resolve_tokens(Stream::cpu(1), *from, *last, *expected);
    EXPECT_EQ(testing::bit_difference(*actual, *expected), "") << rows;
  }
}

TEST(CudaResolveTokens, ASourceBeyondTheSlotsLeavesItsToken) {
  const OwnedTensor actual(DType::kI32, {2});
  Gpu gpu;
  const Tensor tokens = gpu.upload(*testing::int_tensor({11, 12}));
  cuda::resolve_tokens(gpu.stream, gpu.upload(*testing::int_tensor({3, 2})),
                       gpu.upload(*testing::int_tensor({100, 101, 102})), tokens);
  gpu.download(tokens, *actual);
  EXPECT_EQ(testing::bit_difference(*actual, *testing::int_tensor({11, 102})), "");
}

}  // namespace
}  // namespace rose::ops
