#include "kv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"

namespace rose {
namespace {

// Sizes come from options and checkpoints: a product that does not fit is a bad start, not an overflow.
std::size_t checked_product(std::initializer_list<std::int64_t> factors) {
  std::size_t product = 1;
  for (const std::int64_t factor : factors) {
    CHECK(factor >= 0, "negative size {}", factor);
    if (__builtin_mul_overflow(product, static_cast<std::size_t>(factor), &product)) {
      throw StartError("the KV cache does not fit the address space; give fewer pages or a smaller context",
                       kExitDoesNotFit);
    }
  }
  return product;
}

std::size_t tensor_bytes(int pages, const KvShape& shape) {
  return checked_product(
      {pages, shape.page_size, shape.kv_heads, shape.head_dim, static_cast<std::int64_t>(dtype_bytes(shape.dtype))});
}

int layer_count(const std::vector<KvSetSpec>& sets) {
  int count = 0;
  for (const KvSetSpec& set : sets) count += static_cast<int>(set.layers.size());
  return count;
}

}  // namespace

KvCache::KvCache(const std::vector<KvSetSpec>& sets, const std::vector<int>& pages, const KvShape& shape, Arena& arena)
    : shape_(shape), pages_(pages) {
  CHECK(sets.size() == pages.size(), "{} KV sets, {} page counts", sets.size(), pages.size());
  CHECK(shape.page_size > 0 && shape.kv_heads > 0 && shape.head_dim > 0, "page size {}, {} KV heads of {}",
        shape.page_size, shape.kv_heads, shape.head_dim);
  const auto layers = static_cast<std::size_t>(layer_count(sets));
  layers_.resize(layers);
  set_of_.assign(layers, -1);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    CHECK(pages[s] > 0, "KV set {} has {} pages", s, pages[s]);
    for (const int layer : sets[s].layers) {
      const auto at = static_cast<std::size_t>(layer);
      CHECK(layer >= 0 && at < layers && set_of_[at] == -1, "layer {} of {} is in two KV sets, or in none", layer,
            layers);
      set_of_[at] = static_cast<int>(s);
      const auto take = [&](std::string_view what) {
        return arena.tensor(fmt::format("kv.{}.{}", layer, what), shape.dtype,
                            {pages[s], shape.kv_heads, shape.page_size, shape.head_dim});
      };
      layers_[at] = {.keys = take("keys"), .values = take("values"), .page_size = shape.page_size};
    }
  }
}

std::size_t KvCache::bytes(const std::vector<KvSetSpec>& sets, const std::vector<int>& pages, const KvShape& shape) {
  CHECK(sets.size() == pages.size(), "{} KV sets, {} page counts", sets.size(), pages.size());
  std::size_t total = 0;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const std::size_t tensor = Arena::aligned(tensor_bytes(pages[s], shape));
    total += checked_product({2, static_cast<std::int64_t>(sets[s].layers.size()), static_cast<std::int64_t>(tensor)});
  }
  return total;
}

std::size_t KvCache::page_bytes(const KvSetSpec& set, const KvShape& shape) {
  return 2 * set.layers.size() * tensor_bytes(1, shape);
}

}  // namespace rose
