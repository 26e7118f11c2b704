// Device memory of keys and values, addressed by page. Layers that see the same window share one KV set, and so one
// page table per sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace rose {

// One group of layers with the same visibility. window 0: every earlier position is visible.
struct KvSetSpec {
  int window = 0;           // visible positions, self included
  std::vector<int> layers;  // model layers, ascending
};

struct KvShape {
  int page_size = 32;  // positions a page
  int kv_heads = 0;    // of this rank
  int head_dim = 0;
  DType dtype = DType::kBf16;
};

// Keys and values of one layer: [pages, kv_heads, page_size, head_dim]. Slot s is page s / page_size, offset s %
// page_size: a page of one head is contiguous, because attention reads it head by head (decision 0006).
struct KvLayer {
  Tensor keys;
  Tensor values;
  int page_size = 0;

  std::int64_t kv_heads() const { return keys.size(1); }
  std::int64_t slots() const { return keys.size(0) * page_size; }
  // The first element of a KV head's row at a slot.
  std::int64_t element(std::int64_t slot, std::int64_t kv_head) const {
    return ((slot / page_size * kv_heads() + kv_head) * page_size + slot % page_size) * keys.size(3);
  }
};

class KvCache {
 public:
  // pages[i]: pages of set i.
  KvCache(const std::vector<KvSetSpec>& sets, const std::vector<int>& pages, const KvShape& shape, Arena& arena);

  static std::size_t bytes(const std::vector<KvSetSpec>& sets, const std::vector<int>& pages, const KvShape& shape);
  static std::size_t page_bytes(const KvSetSpec& set, const KvShape& shape);  // one page of every layer of the set

  KvLayer& layer(int index) { return layers_.at(static_cast<std::size_t>(index)); }
  int set_of(int layer) const { return set_of_.at(static_cast<std::size_t>(layer)); }
  const KvShape& shape() const { return shape_; }
  int pages(int set) const { return pages_.at(static_cast<std::size_t>(set)); }

 private:
  KvShape shape_;
  std::vector<int> pages_;
  std::vector<KvLayer> layers_;
  std::vector<int> set_of_;
};

}  // namespace rose
