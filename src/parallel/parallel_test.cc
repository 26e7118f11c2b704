#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "parallel/communicator.h"
#include "parallel/plan.h"

namespace rose {
namespace {

TEST(ShardRange, PartsAreDisjointWholeUnitsAndCoverEverything) {
  for (const std::int64_t count : {0, 1, 31, 32, 320, 2880}) {
    for (const int parts : {1, 2, 3, 4, 8}) {
      for (const std::int64_t unit : {1, 32, 64}) {
        std::int64_t next = 0;
        for (int rank = 0; rank < parts; ++rank) {
          const ShardRange range = shard_range(count, parts, rank, unit);
          EXPECT_EQ(range.begin, next);
          EXPECT_TRUE(range.begin % unit == 0 || range.begin == count);
          next = range.end;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

// The widths of spec/model.md 7, rule A.
TEST(ShardRange, GivesThePublishedWidths) {
  EXPECT_EQ(shard_range(2880, 4, 0, 32).size(), 736);
  EXPECT_EQ(shard_range(2880, 4, 3, 32).size(), 672);
  EXPECT_EQ(shard_range(2880, 8, 6, 32).size(), 384);
  EXPECT_EQ(shard_range(2880, 8, 7, 32).size(), 192);
  EXPECT_EQ(shard_range(320, 4, 3, 32).size(), 32);
}

std::string refusal(const ParallelPlan& plan, const PlanShape& shape) {
  try {
    check_plan(plan, shape);
  } catch (const StartError& error) {
    return error.what();
  }
  return "";
}

TEST(CheckPlan, ShowsTheArithmeticOfWhatDoesNotFit) {
  const PlanShape shape{.heads = 64, .kv_heads = 8, .experts = 32};
  EXPECT_EQ(refusal({.dp = 2, .tp = 4, .ep = 8}, shape), "");
  EXPECT_THAT(refusal({.dp = 1, .tp = 2, .ep = 4}, shape),
              testing::HasSubstr("ep = 4 must divide dp * tp = 1 * 2 = 2"));
  EXPECT_THAT(refusal({.dp = 1, .tp = 16, .ep = 1}, shape), testing::HasSubstr("tp = 16 must divide 8 KV heads"));
  EXPECT_THAT(refusal({.dp = 1, .tp = 3, .ep = 1}, shape), testing::HasSubstr("tp = 3 must divide 64 query heads"));
  EXPECT_THAT(refusal({.dp = 0, .tp = 1, .ep = 1}, shape), testing::HasSubstr("1 or more"));
}

class Loopback : public testing::TestWithParam<int> {};

TEST_P(Loopback, ReducesAndGathersTheSameOnEveryRank) {
  const int ranks = GetParam();
  auto communicators = make_loopback_communicators(ranks);
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks)), gathered(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& communicator = *communicators[static_cast<std::size_t>(rank)];
      EXPECT_EQ(communicator.rank(), rank);
      EXPECT_EQ(communicator.size(), ranks);
      const Stream stream = Stream::cpu(1);
      std::vector<float> values{1.f + static_cast<float>(rank), 0.1f};
      std::vector<float> all(2 * static_cast<std::size_t>(ranks));
      for (int round = 0; round < 50; ++round) {
        values = {1.f + static_cast<float>(rank), 0.1f};
        const Tensor tensor(values.data(), DType::kF32, {}, {2});
        communicator.all_gather(stream, tensor, Tensor(all.data(), DType::kF32, {}, {ranks, 2}));
        communicator.all_reduce(stream, tensor);
        communicator.barrier(stream);
      }
      sums[static_cast<std::size_t>(rank)] = values;
      gathered[static_cast<std::size_t>(rank)] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_EQ(sums[r][0], static_cast<float>(ranks * (ranks + 1)) / 2);
    EXPECT_EQ(sums[r], sums[0]);
    EXPECT_EQ(gathered[r], gathered[0]);
    EXPECT_EQ(gathered[0][2 * r], 1.f + static_cast<float>(rank));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Loopback, testing::Values(1, 2, 4));

}  // namespace
}  // namespace rose
