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

// dtype kF8E4M3 holds keys (rotated) and values rounded once to the nearest e4m3, without scales: half the bytes of
// bf16 to keep and to read. Elements of gpt-oss's keys and values are of order 1 to 10, well below the largest e4m3,
// 448 (beyond which they saturate; NaN stays NaN). From 2^-6 up the format is a floating one: the relative error is at
// most 2^-4, 2.6 % root mean square, whatever the scale; smaller elements err by at most 2^-10. A scale would move only
// these two ends. A score sums 64 products whose errors are independent: with elements of size q and k it errs by about
// 0.125 * sqrt(64) * 0.026 * q * k, an output by at most 2.6 % of the values' size, less where positions share the
// weight.
struct KvShape {
  int page_size = 32;  // positions a page
  int kv_heads = 0;    // of this rank
  int head_dim = 0;
  DType dtype = DType::kBf16;  // or kF32, kF8E4M3
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
