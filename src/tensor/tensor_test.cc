#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/result.h"
#include "tensor/arena.h"

namespace rose {
namespace {

TEST(Tensor, SliceAndReshapeAddressTheSameNumbers) {
  std::vector<float> numbers(24);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor tensor(numbers.data(), DType::kF32, {}, {2, 3, 4});
  EXPECT_EQ(tensor.describe(), "f32[2, 3, 4] on cpu");
  EXPECT_EQ(*tensor.slice(1, 1, 3).row<float>(1), 16.f);
  EXPECT_FALSE(tensor.slice(1, 1, 3).contiguous());
  EXPECT_TRUE(tensor.slice(0, 1, 2).contiguous());
  EXPECT_EQ(tensor.reshape({-1, 4}).size(0), 6);
  EXPECT_EQ(*tensor.reshape({6, 4}).row<float>(5), 20.f);
}

TEST(TensorDeathTest, WrongReadsStopTheProcess) {
  float number = 0;
  const Tensor tensor(&number, DType::kF32, {}, {1});
  EXPECT_DEATH(tensor.as<Bf16>(), "f32\\[1\\] on cpu read as bf16");
  EXPECT_DEATH(tensor.slice(0, 0, 2), "slice");
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_bf16(1.f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.f + 0x1p-8f).bits, 0x3f80);            // tie, even below
  EXPECT_EQ(to_bf16(1.f + 0x1p-7f + 0x1p-8f).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bf16(1.f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(F8E4M3, EveryCodeRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    const F8E4M3 value{static_cast<std::uint8_t>(code)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE((code & 0x7f) == 0x7f);
      continue;
    }
    EXPECT_EQ(to_f8e4m3(to_float(value)).bits, code);
  }
  EXPECT_EQ(to_float(F8E4M3{0x7e}), 448.f);
  EXPECT_EQ(to_float(F8E4M3{0x01}), 0x1p-9f);
}

TEST(F8E4M3, RoundsToTheNearestCodeTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = to_float(F8E4M3{static_cast<std::uint8_t>(code)});
    const float high = to_float(F8E4M3{static_cast<std::uint8_t>(code + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_f8e4m3(middle).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(to_f8e4m3(std::nextafter(middle, 0.f)).bits, code);
    EXPECT_EQ(to_f8e4m3(std::nextafter(middle, 500.f)).bits, code + 1);
    EXPECT_EQ(to_f8e4m3(-middle).bits, 0x80 | (code % 2 == 0 ? code : code + 1));
  }
  EXPECT_EQ(to_f8e4m3(1e9f).bits, 0x7e);
}

TEST(Arena, HandsOutAlignedZeroedNamedTensors) {
  Arena arena({}, 4096, "test");
  const Tensor a = arena.tensor("a", DType::kBf16, {3, 5});
  const Tensor b = arena.tensor("b", DType::kF32, {7});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.raw()) % Arena::kAlignment, 0u);
  EXPECT_EQ(arena.bytes_used(), 512u);
  EXPECT_EQ(a.row<Bf16>(2)->bits, 0);
  EXPECT_NE(arena.table().find("a  "), std::string::npos);
}

TEST(ArenaDeathTest, RunningOutNamesTheTensor) {
  Arena arena({}, 256, "test");
  arena.take("first", 200);
  EXPECT_DEATH(arena.take("second", 1), "second wants 256 bytes, 0 of 256 left");
}

TEST(Arena, MoreThanTheMachineHasIsRefusedAtStart) {
  EXPECT_THROW(Arena({}, std::size_t{1} << 50, "huge"), StartError);
}

}  // namespace
}  // namespace rose
