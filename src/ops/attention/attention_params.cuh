// What the launcher hands to the attention kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct PrefillConfig {
  static constexpr int kHeadDim = 64;
  static constexpr int kGroupHeads = 8;                          // query heads a KV head
  static constexpr int kConsumers = 3;                           // warpgroups, 64 rows each
  static constexpr int kTokens = kConsumers * 64 / kGroupHeads;  // of a tile
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kQueryBytes = kTokens * kGroupHeads * kHeadDim * 2;
  static constexpr int kOnesBytes = 16 * 128;       // 16 rows of the swizzled line in which V's columns 64 on would lie
  static constexpr int kOutColumns = kHeadDim + 8;  // row sums, the same in all columns from kHeadDim on
  static constexpr int kSum = kHeadDim / 2;  // where a thread has its first row's; the second's is two further on
  static constexpr int kRepeats = 4096;      // tiles of a block that can be told apart when some are computed again
  static_assert(kHeadDim * 2 == 128, "a row is one 128-byte swizzled line");
};

// K and V in shared memory: units of so many positions, 32 bytes of each for every position and stage.
template <int kPositions>
struct PrefillUnits {
  static constexpr int kKeys = kPositions;
  static constexpr int kStages = 512 / kPositions;
  static constexpr int kBytes = kPositions * PrefillConfig::kHeadDim * 2;
  static_assert((kStages & (kStages - 1)) == 0, "a stage is the low bits of a unit's number");
};

struct DecodeConfig {
  static constexpr int kUnit = 64;      // positions of a unit of K and V
  static constexpr bool kE4m3 = false;  // keys and values
  static constexpr int kRowBytes = 128;
  static constexpr int kUnitBytes = kUnit * kRowBytes;
  static constexpr int kWarps = 4;  // 16 positions each
  static constexpr int kStages = 6;
  static constexpr int kThreads = kWarps * 32 + 32;
  static constexpr int kBlocksPerSm = 2;
  static constexpr std::uint64_t kPolicy = 0x12F0000000000000;  // L2: evict first, it is read once
  static constexpr int kRowsMax = 8;      // a sequence with more new rows goes to the prefill kernel
  static constexpr int kItemsLeast = 8;   // of a run, so that short contexts are not cut to pieces
  static constexpr int kWindowMax = 256;  // up to here a window is one piece of work
  static constexpr int kPieceBytes = (8 + 8 + 8 * 64) * 4;
};

// The same work over e4m3, in units of half the bytes: twice the stages.
struct DecodeE4m3Config : DecodeConfig {
  static constexpr bool kE4m3 = true;
  static constexpr int kRowBytes = 64;
  static constexpr int kUnitBytes = kUnit * kRowBytes;
  static constexpr int kStages = 12;
};

// Rows of a box of the key and value maps: a page, or a part of one.
inline constexpr int kBoxRowsMax = 32;
// Up to this context, keys and values of all heads stay in L2 (33 MB in bf16).
inline constexpr int kContextInL2 = 16384;
// The least page of e4m3: a box of 1024 bytes, which is where the swizzle repeats.
inline constexpr int kE4m3PageLeast = 16;

// A single row against its context.
struct alignas(16) DecodeRow {
  int row;
  int table;       // entry of logical page 0 in page_table (may be negative: pages before the window have none)
  int begin, end;  // positions seen
  int fresh;       // first position that may not be read before this step's rows are appended
  int items;       // pieces of work of one KV head
  int before;      // items of all KV heads of the rows before
  int index;       // in the list of decode rows
};

// What one block of the decode kernel does: `items` pieces of work from `item` of `kv_head` on.
struct alignas(16) DecodeRun {
  DecodeRow row;
  int kv_head;
  int item;
  int items;
  int length;  // items of every run but the last
};

struct AttentionParams {
  CUtensorMap query;  // [rows, heads, 64] bf16, boxes of kTokens x 8 x 64
  CUtensorMap keys;   // [pages * kv_heads * page_size, 64] bf16, boxes of box_rows x 64; e4m3: two rows a 128-byte line
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
  int page_size, page_shift;  // a power of two, and which
  int pages_max, box_rows;
  int window;         // 0: none
  int heads_at_once;  // KV heads that prefill reads at the same time; a divisor of kv_heads
  float scale_log2;   // scale * log2(e): scores enter exp2

  int decode_blocks;      // of the decode kernel
  int decode_item_units;  // units of an item: 1, or a whole window

  // Made once a step by attention_plan_kernel, on the device.
  int* tile_count;         // [1] prefill tiles
  int2* tile_list;         // [tiles]: sequence, first row within it
  DecodeRow* decode_rows;  // [decode rows]
  DecodeRun* decode_runs;  // [decode_blocks]
  int* decode_offsets;     // [decode rows + 1]: items of one KV head before the row
  int* decode_arrivals;    // [decode rows, kv_heads], zero between launches
  void* decode_scratch;    // [decode_blocks, 2] pieces

  int reads_own_rows;  // AttentionPlan::reads_own_rows
};

void launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream);
void launch_attention_decode(const AttentionParams& params, cudaStream_t stream);
void launch_attention_prefill_e4m3(const AttentionParams& params, int blocks, cudaStream_t stream);
void launch_attention_decode_e4m3(const AttentionParams& params, cudaStream_t stream);
void launch_attention_plan(const AttentionParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
