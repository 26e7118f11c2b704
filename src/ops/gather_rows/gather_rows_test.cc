#include "ops/gather_rows/gather_rows.h"

#include <gtest/gtest.h>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

TEST(GatherRows, TakesRowsInTheOrderAskedWithRepeats) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const OwnedTensor x = testing::random_tensor(dtype, {5, 13}, 1);
    const OwnedTensor out(dtype, {4, 13});
    gather_rows(Stream::cpu(2), *x, *testing::int_tensor({4, 0, 4, 2}), *out);
    const std::int64_t want[] = {4, 0, 4, 2};
    for (std::int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(testing::bit_difference(out->rows(r, r + 1), x->rows(want[r], want[r] + 1)), "") << r;
    }
  }
}

TEST(GatherRows, NoRowsIsNothingToDo) {
  const OwnedTensor x = testing::random_tensor(DType::kF32, {5, 13}, 1);
  gather_rows(Stream::cpu(1), *x, *testing::int_tensor({}), Tensor(nullptr, DType::kF32, Device{}, {0, 13}));
}

TEST(GatherRowsDeathTest, ARowThatDoesNotExistIsCaught) {
  const OwnedTensor x = testing::random_tensor(DType::kF32, {5, 13}, 1);
  const OwnedTensor out(DType::kF32, {1, 13});
  EXPECT_DEATH(gather_rows(Stream::cpu(1), *x, *testing::int_tensor({5}), *out), "row 5 of 5");
}

}  // namespace
}  // namespace rose::ops
