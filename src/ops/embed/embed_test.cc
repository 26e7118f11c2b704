#include "ops/embed/embed.h"

#include <gtest/gtest.h>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

TEST(Embed, EveryRowIsItsTokensRow) {
  const OwnedTensor embedding = testing::random_tensor(DType::kBf16, {11, 37}, 1);
  const OwnedTensor tokens = testing::int_tensor({10, 0, 3, 3});
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const OwnedTensor out(dtype, {4, 37});
    embed(Stream::cpu(2), *tokens, *embedding, *out);
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t h = 0; h < 37; ++h) {
        EXPECT_EQ(testing::element(*out, r * 37 + h),
                  testing::element(*embedding, tokens->as<std::int32_t>()[r] * 37 + h));
      }
    }
  }
}

TEST(EmbedDeathTest, ATokenOutsideTheVocabularyIsCaught) {
  const OwnedTensor embedding = testing::random_tensor(DType::kBf16, {11, 8}, 1);
  const OwnedTensor out(DType::kF32, {1, 8});
  EXPECT_DEATH(embed(Stream::cpu(1), *testing::int_tensor({11}), *embedding, *out), "token 11 of 11");
}

TEST(ResolveTokens, OnlyRowsWithASourceChange) {
  const OwnedTensor tokens = testing::int_tensor({7, -5, 9});
  resolve_tokens(Stream::cpu(1), *testing::int_tensor({-1, 2, 0}), *testing::int_tensor({100, 101, 102}), *tokens);
  EXPECT_EQ(tokens->as<std::int32_t>()[0], 7);
  EXPECT_EQ(tokens->as<std::int32_t>()[1], 102);
  EXPECT_EQ(tokens->as<std::int32_t>()[2], 100);
}

}  // namespace
}  // namespace rose::ops
