// What the launcher hands to the attention kernels.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace rose::ops::cuda {

inline constexpr int kPrefillTokens = 24;  // tokens of a prefill tile

struct AttentionParams {
  CUtensorMap query;  // [rows, heads, 64] bf16, boxes of kPrefillTokens x 8 x 64
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

}  // namespace rose::ops::cuda
