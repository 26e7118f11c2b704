#include "device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace rose {
namespace {

class ParallelFor : public testing::TestWithParam<int> {};

TEST_P(ParallelFor, VisitsEveryItemExactlyOnce) {
  const Stream stream = Stream::cpu(GetParam());
  EXPECT_EQ(stream.threads(), GetParam());
  for (const std::size_t count : {0u, 1u, 2u, 7u, 64u, 1001u}) {
    for (const std::size_t grain : {1u, 3u, 64u}) {
      std::vector<std::atomic<int>> visits(count);
      stream.parallel_for(count, grain, [&](std::size_t begin, std::size_t end) {
        EXPECT_LT(begin, end);
        for (std::size_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

TEST_P(ParallelFor, ManyShortJobsInARowNeitherHangNorMix) {
  const Stream stream = Stream::cpu(GetParam());
  for (int job = 0; job < 2000; ++job) {
    std::atomic<int> sum{0};
    stream.parallel_for(16, 1, [&](std::size_t begin, std::size_t end) { sum += static_cast<int>(end - begin); });
    ASSERT_EQ(sum, 16);
  }
}

TEST_P(ParallelFor, OneStreamServesSeveralCallers) {
  const Stream stream = Stream::cpu(GetParam());
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 200; ++job) {
        stream.parallel_for(8, 1, [&](std::size_t begin, std::size_t end) { total += static_cast<int>(end - begin); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3 * 200 * 8);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, testing::Values(1, 2, 3));

}  // namespace
}  // namespace rose
