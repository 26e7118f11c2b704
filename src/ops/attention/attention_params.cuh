// What the launcher hands to the attention kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

inline constexpr int kPrefillTokens = 24;  // tokens of a prefill tile

struct PrefillConfig {
  static constexpr int kHeadDim = 64;
  static constexpr int kGroupHeads = 8;  // query heads a KV head
  static constexpr int kTokens = 24;     // of a tile
  static constexpr int kConsumers = kTokens * kGroupHeads / 64;
  static constexpr int kKeys = 128;  // positions of a K or V tile
  static constexpr int kStages = 3;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kTileBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kTokens * kGroupHeads * kHeadDim * 2;
  static_assert(kHeadDim * 2 == 128, "a row is one 128-byte swizzled line");
};

struct AttentionParams {
  CUtensorMap query;  // [rows, heads, 64] bf16, boxes of kTokens x 8 x 64
  CUtensorMap keys;   // [pages, page_size, kv_heads, 64] bf16, boxes of one page of one head
  CUtensorMap values;
  const int* row_offsets;      // [sequences + 1]
  const int* context_lengths;  // [sequences]
  const int* page_table;       // [sequences, pages_max]
  const int* first_pages;      // [sequences]
  const int2* tile_list;       // [tiles]: sequence, first row within it
  const std::uint16_t* sinks;  // [heads] bf16
  std::uint16_t* out;          // [rows, heads * 64] bf16
  int tiles;
  int heads, kv_heads;
  int page_size, pages_max;
  int window;           // 0: none
  float scale_log2;     // scale * log2(e): scores enter exp2
  float inverse_scale;  // 1 / scale: sinks are raw, maxima are in units of q . k
};

// kPolynomial: a quarter of the exponentials on the FMA units.
template <bool kPolynomial>
void launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream);

}  // namespace rose::ops::cuda
