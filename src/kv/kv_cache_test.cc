#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace rose {
namespace {

const std::vector<KvSetSpec> kSets = {{.window = 0, .layers = {1, 3}}, {.window = 128, .layers = {0, 2}}};
const KvShape kShape{.page_size = 4, .kv_heads = 2, .head_dim = 8, .dtype = DType::kBf16};

TEST(KvCache, TakesExactlyTheBytesItAnnounces) {
  Arena arena(Device{}, KvCache::bytes(kSets, {5, 3}, kShape), "kv");
  KvCache kv(kSets, {5, 3}, kShape, arena);
  EXPECT_EQ(arena.bytes_used(), arena.bytes_total());
}

TEST(KvCache, EveryLayerHasThePagesOfItsSet) {
  Arena arena(Device{}, KvCache::bytes(kSets, {5, 3}, kShape), "kv");
  KvCache kv(kSets, {5, 3}, kShape, arena);
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(kv.set_of(layer), layer % 2 == 1 ? 0 : 1);
    EXPECT_EQ(kv.layer(layer).keys.size(0), kv.pages(kv.set_of(layer)));
    EXPECT_EQ(kv.layer(layer).values.describe(), kv.layer(layer).keys.describe());
    EXPECT_NE(kv.layer(layer).keys.raw(), kv.layer(layer).values.raw());
  }
}

// A page of one head is contiguous, and so is a page.
TEST(KvCache, RowsOfAHeadLieSideBySideWithinAPage) {
  Arena arena(Device{}, KvCache::bytes(kSets, {5, 3}, kShape), "kv");
  KvCache kv(kSets, {5, 3}, kShape, arena);
  const KvLayer& layer = kv.layer(1);
  EXPECT_EQ(layer.keys.describe(), Tensor(nullptr, DType::kBf16, {}, {5, 2, 4, 8}).describe());
  EXPECT_EQ(layer.slots(), 20);
  std::int64_t element = 0;
  for (int page = 0; page < 5; ++page) {
    for (int head = 0; head < 2; ++head) {
      for (int offset = 0; offset < 4; ++offset, element += 8) {
        EXPECT_EQ(layer.element(page * 4 + offset, head), element) << page << " " << head << " " << offset;
      }
    }
  }
}

TEST(KvCache, APageHoldsKeysAndValuesOfEveryLayerOfItsSet) {
  EXPECT_EQ(KvCache::page_bytes(kSets[0], kShape), 2u * 2 * 4 * 2 * 8 * 2);
  KvShape e4m3 = kShape;
  e4m3.dtype = DType::kF8E4M3;
  EXPECT_EQ(KvCache::page_bytes(kSets[0], e4m3), KvCache::page_bytes(kSets[0], kShape) / 2);
}

TEST(KvCache, SizesThatOverflowAreABadStart) {
  KvShape shape = kShape;
  shape.page_size = shape.kv_heads = shape.head_dim = 1 << 30;
  EXPECT_THROW((void)KvCache::bytes(kSets, {1 << 30, 1}, shape), StartError);
}

}  // namespace
}  // namespace rose
