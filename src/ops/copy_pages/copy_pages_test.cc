#include "ops/copy_pages/copy_pages.h"

#include <gtest/gtest.h>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

struct Layer {
  OwnedTensor keys, values;
  KvLayer kv;

  Layer(std::int64_t pages, std::uint64_t seed, DType dtype = DType::kBf16) {
    keys = testing::random_tensor(dtype, {pages, 2, 4, 8}, seed);
    values = testing::random_tensor(dtype, {pages, 2, 4, 8}, seed + 1);
    kv = {*keys, *values, 4};
  }
};

OwnedTensor pairs(const std::vector<std::int32_t>& flat) {
  OwnedTensor tensor(DType::kI32, {static_cast<std::int64_t>(flat.size() / 2), 2});
  std::copy(flat.begin(), flat.end(), tensor->as<std::int32_t>());
  return tensor;
}

class CopyPages : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Caches, CopyPages, ::testing::Values(DType::kF32, DType::kBf16, DType::kF8E4M3),
                         [](const auto& c) { return std::string(dtype_name(c.param)); });

TEST_P(CopyPages, CopiesKeysAndValuesOfTheNamedPagesAlone) {
  const Layer from(5, 1, GetParam());
  Layer to(3, 7, GetParam());
  const Layer before(3, 7, GetParam());
  copy_pages(Stream::cpu(1), from.kv, to.kv, *pairs({4, 0, 1, 2}));
  EXPECT_EQ(testing::bit_difference(to.keys->rows(0, 1), from.keys->rows(4, 5)), "");
  EXPECT_EQ(testing::bit_difference(to.values->rows(0, 1), from.values->rows(4, 5)), "");
  EXPECT_EQ(testing::bit_difference(to.keys->rows(2, 3), from.keys->rows(1, 2)), "");
  EXPECT_EQ(testing::bit_difference(to.values->rows(2, 3), from.values->rows(1, 2)), "");
  EXPECT_EQ(testing::bit_difference(to.keys->rows(1, 2), before.keys->rows(1, 2)), "");
  EXPECT_EQ(testing::bit_difference(to.values->rows(1, 2), before.values->rows(1, 2)), "");
}

TEST_P(CopyPages, WorksWithinOneCacheAndInOrder) {
  Layer layer(4, 1, GetParam());
  const Layer before(4, 1, GetParam());
  copy_pages(Stream::cpu(1), layer.kv, layer.kv, *pairs({0, 1, 1, 2, 3, 3}));
  EXPECT_EQ(testing::bit_difference(layer.keys->rows(2, 3), before.keys->rows(0, 1)), "");
  EXPECT_EQ(testing::bit_difference(layer.keys->rows(3, 4), before.keys->rows(3, 4)), "");
}

TEST(CopyPagesDeathTest, APageThatDoesNotExistIsCaught) {
  Layer layer(4, 1);
  EXPECT_DEATH(copy_pages(Stream::cpu(1), layer.kv, layer.kv, *pairs({0, 4})), "page 4 of 4");
}

}  // namespace
}  // namespace rose::ops
