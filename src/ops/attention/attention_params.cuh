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

struct DecodeConfig {
  static constexpr int kUnit = 64;  // positions of a unit of work
  static constexpr int kUnitBytes = kUnit * 128;
  static constexpr int kWarps = 4;  // 16 positions each
  static constexpr int kStages = 6;
  static constexpr int kThreads = kWarps * 32 + 32;
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kRowsMax = 8;  // a sequence with more new rows goes to the prefill kernel
  static constexpr int kPieceBytes = (8 + 8 + 8 * 64) * 4;
};

struct AttentionParams {
  CUtensorMap query;  // [rows, heads, 64] bf16, boxes of kTokens x 8 x 64
  CUtensorMap keys;   // [pages * kv_heads * page_size, 64] bf16, boxes of one page of one head
  CUtensorMap values;
  const std::uint16_t* query_rows;  // the same q, for single rows
  const int* row_offsets;           // [sequences + 1]
  const int* context_lengths;       // [sequences]
  const int* page_table;            // [sequences, pages_max]
  const int* first_pages;           // [sequences]
  const std::uint16_t* sinks;       // [heads] bf16
  std::uint16_t* out;               // [rows, heads * 64] bf16
  int sequences;
  int heads, kv_heads;
  int page_size, pages_max;
  int window;           // 0: none
  float scale_log2;     // scale * log2(e): scores enter exp2
  float inverse_scale;  // 1 / scale: sinks are raw, maxima are in units of q . k

  // Made once a step by attention_plan_kernel, on the device.
  int* tile_count;       // [1] prefill tiles
  int2* tile_list;       // [tiles]: sequence, first row within it
  int* decode_counts;    // [1] decode rows
  int4* decode_rows;     // [decode rows]: row, sequence, first and end position seen
  int* decode_offsets;   // [decode rows + 1]: units of one KV head before the row
  int* decode_arrivals;  // [decode rows, kv_heads], zero between launches
  void* decode_scratch;  // [blocks, 2] pieces
};

// kPolynomial: a quarter of the exponentials on the FMA units.
template <bool kPolynomial>
void launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream);
void launch_attention_decode(const AttentionParams& params, int blocks, cudaStream_t stream);
void launch_attention_plan(const AttentionParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
