#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/random.h"

namespace rose {
namespace {

std::vector<std::int32_t> page_tokens(int first, int count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(PageHash, DependsOnTokensParentSaltAndSecret) {
  const auto a = page_tokens(0, 4), b = page_tokens(1, 4);
  const PageHash root = root_hash(1, "x");
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const PageHash& h :
       {page_hash(root, a), page_hash(root, b), page_hash(page_hash(root, a), a), page_hash(page_hash(root, b), a),
        page_hash(root_hash(1, "y"), a), page_hash(root_hash(2, "x"), a), page_hash({root.low, root.high + 1}, a),
        page_hash({root.low + 1, root.high}, a)}) {
    seen.insert({h.low, h.high});
  }
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(page_hash(root, a), page_hash(root, a));
}

TEST(PagePool, HandsOutEveryPageOnceAndThenNone) {
  PagePool pool(3, 4, true);
  EXPECT_EQ((std::set{pool.acquire(), pool.acquire(), pool.acquire()}), (std::set{0, 1, 2}));
  EXPECT_EQ(pool.acquire(), -1);
  pool.release(1, 0);
  EXPECT_EQ(pool.acquire(), 1);
  pool.check_invariant();
}

TEST(PagePool, APageIsNotReusedBeforeItsLastStepIsCommitted) {
  PagePool pool(1, 4, true);
  const int page = pool.acquire();
  pool.release(page, 7);
  EXPECT_EQ(pool.fenced(), 1);
  pool.committed(6);
  EXPECT_EQ(pool.acquire(), -1);
  pool.committed(7);
  EXPECT_EQ(pool.acquire(), page);
}

TEST(PagePool, TheLatestFenceOfAllHoldersCounts) {
  PagePool pool(1, 1, true);
  const int page = pool.acquire();
  const PageHash hash = page_hash(root_hash(0, ""), page_tokens(0, 1));
  pool.publish(page, hash, page_tokens(0, 1));
  EXPECT_EQ(pool.share(hash, page_tokens(0, 1)), page);
  pool.release(page, 9);
  pool.release(page, 2);
  pool.committed(2);
  EXPECT_EQ(pool.acquire(), -1);
  pool.committed(9);
  EXPECT_EQ(pool.acquire(), page);
}

TEST(PagePool, CachedPagesAreFoundUntilTheyAreEvictedOldestFirst) {
  PagePool pool(3, 2, true);
  const PageHash root = root_hash(0, "");
  for (int i = 0; i < 3; ++i) pool.publish(pool.acquire(), page_hash(root, page_tokens(i, 2)), page_tokens(i, 2));
  for (const int page : {2, 0, 1}) pool.release(page, 0);
  EXPECT_EQ(pool.cached(), 3);
  EXPECT_EQ(pool.acquire(), 2);
  EXPECT_FALSE(pool.contains(page_hash(root, page_tokens(2, 2)), page_tokens(2, 2)));
  const int shared = pool.share(page_hash(root, page_tokens(0, 2)), page_tokens(0, 2));
  EXPECT_EQ(shared, 0);
  pool.release(shared, 0);  // now younger than page 1
  EXPECT_EQ(pool.acquire(), 1);
  pool.check_invariant();
}

TEST(PagePool, EqualHashesOfDifferentTokensAreNotShared) {
  PagePool pool(2, 2, true);
  const PageHash forged{1, 2};
  pool.publish(pool.acquire(), forged, page_tokens(0, 2));
  EXPECT_EQ(pool.share(forged, page_tokens(5, 2)), -1);
  EXPECT_EQ(pool.share(forged, page_tokens(0, 2)), 0);
}

TEST(PagePool, ForgottenContentIsNeverFoundAgain) {
  PagePool pool(2, 1, true);
  const PageHash live{1, 1}, cached{2, 2};
  pool.publish(pool.acquire(), live, page_tokens(0, 1));
  const int second = pool.acquire();
  pool.publish(second, cached, page_tokens(1, 1));
  pool.release(second, 0);
  pool.forget(live);
  pool.forget(cached);
  pool.forget({3, 3});
  EXPECT_EQ(pool.share(live, page_tokens(0, 1)), -1);
  EXPECT_EQ(pool.share(cached, page_tokens(1, 1)), -1);
  EXPECT_EQ(pool.free(), 1);
  pool.check_invariant();
}

TEST(PagePool, WithoutACacheContentIsSharedOnlyWhileLive) {
  PagePool pool(1, 1, false);
  const int page = pool.acquire();
  pool.publish(page, {1, 1}, page_tokens(0, 1));
  EXPECT_EQ(pool.share({1, 1}, page_tokens(0, 1)), page);
  pool.release(page, 0);
  pool.release(page, 0);
  EXPECT_EQ(pool.share({1, 1}, page_tokens(0, 1)), -1);
  EXPECT_EQ(pool.free(), 1);
}

TEST(PagePoolDeathTest, ReleasingAPageNobodyHoldsIsOurBug) {
  PagePool pool(1, 1, true);
  EXPECT_DEATH(pool.release(0, 0), "released with 0 references");
}

// The model: who holds which page, and what each page's content is called. Every operation of the pool is checked
// against it.
struct NaivePool {
  std::map<int, std::multiset<std::uint64_t>> holders;  // page: fences of the references still held (unknown yet: 0)
  std::map<int, std::uint64_t> fence;                   // page: latest step that may still touch it
  std::map<int, int> content;                           // page: content number
};

TEST(PagePool, AgreesWithANaiveModelOverRandomOperations) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t bound) { return static_cast<int>(random_bits(seed, draw++) % bound); };
    const int total = 1 + below(9);
    PagePool pool(total, 1, seed % 4 != 0);
    NaivePool model;
    std::vector<int> held;  // one entry a reference
    std::uint64_t step = 0, committed = 0;
    for (int i = 0; i < 1500; ++i) {
      const int what = below(10);
      if (what < 3) {
        const int page = pool.acquire();
        ASSERT_TRUE(page >= 0 || pool.available() == 0) << "seed " << seed;
        if (page < 0) continue;
        ASSERT_EQ(std::count(held.begin(), held.end(), page), 0) << "seed " << seed << ": page in use handed out";
        ASSERT_LE(model.fence[page], committed) << "seed " << seed << ": page of an uncommitted step handed out";
        model.content.erase(page);
        held.push_back(page);
      } else if (what < 6 && !held.empty()) {
        const auto at = held.begin() + below(held.size());
        const std::uint64_t last = committed + static_cast<std::uint64_t>(below(step - committed + 1));
        model.fence[*at] = std::max(model.fence[*at], last);
        pool.release(*at, last);
        held.erase(at);
      } else if (what < 7 && !held.empty()) {
        const int page = held[static_cast<std::size_t>(below(held.size()))], content = below(6);
        if (!model.content.contains(page)) {
          const auto number = static_cast<std::uint64_t>(content);
          if (!pool.contains({number, 0}, page_tokens(content, 1))) model.content[page] = content;
          pool.publish(page, {number, 0}, page_tokens(content, 1));
        }
      } else if (what < 8) {
        const int content = below(6);
        const int page = pool.share({static_cast<std::uint64_t>(content), 0}, page_tokens(content, 1));
        if (page >= 0) {
          ASSERT_EQ(model.content.at(page), content) << "seed " << seed << ": wrong content shared";
          held.push_back(page);
        }
      } else if (what < 9) {
        ++step;
      } else if (committed < step) {
        pool.committed(++committed);
      }
      pool.check_invariant();
      ASSERT_EQ(pool.live(), static_cast<int>(std::set<int>(held.begin(), held.end()).size()));
    }
    pool.committed(step);
    for (const int page : held) pool.release(page, step);
    EXPECT_EQ(pool.available(), total) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rose
