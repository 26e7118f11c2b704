// Against the reference with f32 outputs on the same bf16 input. Of size at most m = 1.35 (the concentration), cosine
// and sine err by m * 2^-22 here and m * 2^-24 there; with inputs of size at most 3, two products and a sum that is
// 2 * 3 * m * 2^-21 with their roundings, then the rounding to bf16 (2^-8 of the result, at most) or, of keys in an
// e4m3 cache, to e4m3 (2^-4, and 2^-10 below 2^-6). Values are copies; in an e4m3 cache, bit for bit the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/rope_append/rope_append.h"
#include "ops/rope_append/rope_append_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

constexpr std::int64_t kDim = 64;
const testing::Bound kRounded = testing::bound(2 * 3 * 1.35 * 0x1p-21, 1.01 * 0x1p-8);

struct Case {
  const char* name;
  int rows, heads, kv_heads, page_size, pages;
  int first_position, step;
  double factor = 32;
  DType cache = DType::kBf16;
  float query_factor = 1;
};

std::vector<std::int32_t> shuffled(int count) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(7, i) % i]);
  return order;
}

struct Problem {
  explicit Problem(const Case& c)
      : rope(RopeConfig{.factor = c.factor}),
        qkv(testing::random_tensor(DType::kBf16, {c.rows, (c.heads + 2 * c.kv_heads) * kDim}, 1, 3)),
        expected_q(DType::kF32, {c.rows, c.heads, kDim}),
        expected_keys(DType::kF32, {c.pages, c.kv_heads, c.page_size, kDim}),
        expected_values(c.cache == DType::kBf16 ? DType::kF32 : c.cache, {c.pages, c.kv_heads, c.page_size, kDim}),
        q(DType::kBf16, {c.rows, c.heads, kDim}),
        keys(c.cache, {c.pages, c.kv_heads, c.page_size, kDim}),
        values(c.cache, {c.pages, c.kv_heads, c.page_size, kDim}) {
    rope.query_factor = c.query_factor;
    std::vector<std::int32_t> at, to = shuffled(c.pages * c.page_size);
    for (int r = 0; r < c.rows; ++r) at.push_back(c.first_position + r * c.step);
    to.resize(static_cast<std::size_t>(c.rows));
    positions = testing::int_tensor(at);
    slots = testing::int_tensor(to);
    page_size = c.page_size;
  }

  void run_reference() {
    KvLayer kv{*expected_keys, *expected_values, page_size};
    ref::rope_append(Stream::cpu(4), *qkv, *positions, *slots, rope, kv, *expected_q);
  }
  void run(const std::vector<std::int32_t>& device_slots) {
    Gpu gpu;
    const Tensor frequencies(rope.frequencies.data(), DType::kF32, Device{}, {kDim / 2});
    Rope on_device = rope;
    on_device.table = gpu.upload(frequencies);
    KvLayer kv{gpu.like(*keys), gpu.like(*values), page_size};
    const Tensor device_q = gpu.like(*q);
    cuda::rope_append(gpu.stream, gpu.upload(*qkv), gpu.upload(*positions),
                      gpu.upload(*testing::int_tensor(device_slots)), on_device, kv, device_q);
    gpu.download(device_q, *q);
    gpu.download(kv.keys, *keys);
    gpu.download(kv.values, *values);
  }
  std::vector<std::int32_t> slot_list() const {
    const auto* first = slots->as<std::int32_t>();
    return {first, first + slots->size(0)};
  }

  Rope rope;
  OwnedTensor qkv, expected_q, expected_keys, expected_values, q, keys, values, positions, slots;
  int page_size = 0;
};

void expect_cache(const Problem& problem) {
  const bool e4m3 = problem.keys->dtype() == DType::kF8E4M3;
  const testing::Bound keys = e4m3 ? testing::bound(2 * 3 * 1.35 * 0x1p-21 + 0x1p-10, 1.01 * 0x1p-4) : kRounded;
  EXPECT_EQ(testing::difference(*problem.keys, *problem.expected_keys, keys), "");
  EXPECT_EQ(testing::difference(*problem.values, *problem.expected_values, testing::bound(0, 0)), "");
}

class CudaRopeAppend : public ::testing::TestWithParam<Case> {};

// The poison of slots that nobody wrote is NaN on both sides.
TEST_P(CudaRopeAppend, EqualsTheReference) {
  Problem problem(GetParam());
  problem.run(problem.slot_list());
  problem.run_reference();
  EXPECT_EQ(testing::difference(*problem.q, *problem.expected_q, kRounded), "");
  expect_cache(problem);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaRopeAppend,
                         ::testing::Values(Case{"no_rows", 0, 8, 1, 4, 2, 0, 1},
                                           Case{"first_position", 1, 64, 8, 32, 2, 0, 1},
                                           Case{"published_heads", 70, 64, 8, 32, 5, 0, 1},
                                           Case{"last_positions", 40, 64, 8, 32, 2, 131072 - 40, 1},
                                           Case{"all_over", 200, 8, 1, 32, 7, 3, 655},
                                           Case{"a_quarter_of_the_heads", 33, 16, 2, 32, 3, 4000, 7},
                                           Case{"an_eighth_of_the_heads", 65, 8, 1, 64, 2, 126, 1},
                                           Case{"odd_heads", 5, 3, 3, 8, 2, 1000, 1},
                                           Case{"plain_rope", 9, 16, 2, 16, 2, 90000, 11, 1},
                                           Case{"scaled_queries", 70, 64, 8, 32, 5, 0, 1, 32, DType::kBf16, 0.18f},
                                           Case{"e4m3", 70, 64, 8, 32, 5, 0, 1, 32, DType::kF8E4M3},
                                           Case{"e4m3_one_row", 1, 64, 8, 32, 2, 0, 1, 32, DType::kF8E4M3},
                                           Case{"e4m3_all_over", 200, 8, 1, 32, 7, 3, 655, 32, DType::kF8E4M3},
                                           Case{"e4m3_odd_heads", 5, 3, 3, 16, 2, 1000, 1, 32, DType::kF8E4M3}),
                         [](const auto& info) { return info.param.name; });

class CudaRopeAppendCaches : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, CudaRopeAppendCaches, ::testing::Values(DType::kBf16, DType::kF8E4M3),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(CudaRopeAppendCaches, ARowWithoutASlotIsRotatedAndNotAppended) {
  Problem problem({"", 3, 16, 2, 4, 2, 500, 1, 32, GetParam()});
  std::vector<std::int32_t> slots = problem.slot_list();
  slots[0] = -1;
  slots[2] = 8;
  problem.run(slots);
  problem.run_reference();
  EXPECT_EQ(testing::difference(*problem.q, *problem.expected_q, kRounded), "");
  for (const int r : {0, 2}) {
    const std::int32_t slot = problem.slots->as<std::int32_t>()[r];
    for (const OwnedTensor* expected : {&problem.expected_keys, &problem.expected_values}) {
      const KvLayer kv{**expected, **expected, problem.page_size};
      for (int head = 0; head < 2; ++head) {
        const std::size_t bytes = dtype_bytes((*expected)->dtype());
        std::memset(static_cast<char*>((*expected)->raw()) + static_cast<std::size_t>(kv.element(slot, head)) * bytes,
                    0xff, kDim * bytes);
      }
    }
  }
  expect_cache(problem);
}

// Powers of two from below the smallest e4m3 to beyond the largest, ties, infinities and NaN.
TEST(CudaRopeAppendE4m3, ValuesAreRoundedOnceSaturateAndKeepNaN) {
  Problem problem({"", 6, 8, 2, 16, 2, 0, 1, 32, DType::kF8E4M3});
  for (std::int64_t row = 0; row < 6; ++row) {
    Bf16* values = problem.qkv->row<Bf16>(row) + 10 * kDim;
    for (int i = 0; i < 2 * kDim; ++i) {
      const float exact = std::ldexp(static_cast<float>(128 + (i * 6 + row * 11) % 128), i % 24 - 20);
      values[i] = to_bf16(i % 3 == 0 ? -exact : exact);
    }
    values[3] = to_bf16(HUGE_VALF), values[4] = to_bf16(-HUGE_VALF), values[77] = to_bf16(std::nanf(""));
  }
  problem.run(problem.slot_list());
  problem.run_reference();
  expect_cache(problem);
}

}  // namespace
}  // namespace rose::ops
