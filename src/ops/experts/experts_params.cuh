// What the launcher hands to the expert kernels, and the shapes both agree on.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

// A tile's rows as the products cut them: parts of n columns each, in the order of the rows they hold. More widths cost
// code, fewer cost empty columns.
#define ROSE_EXPERT_SHAPES(X) \
  X(1, 8)                     \
  X(1, 16)                    \
  X(1, 24)                    \
  X(1, 32)                    \
  X(1, 40)                    \
  X(1, 48)                    \
  X(1, 64)                    \
  X(2, 40)                    \
  X(2, 48)                    \
  X(2, 56)                    \
  X(2, 64)                    \
  X(3, 48)                    \
  X(3, 56)                    \
  X(3, 64)                    \
  X(4, 56)                    \
  X(4, 64)                    \
  X(6, 48)

constexpr __host__ __device__ int expert_shape(int parts, int n) { return parts * 256 + n; }
constexpr __host__ __device__ int expert_shape_rows(int shape) { return shape / 256 * (shape % 256); }

// Many rows of an expert: weights are unpacked once for up to 288 rows.
struct ExpertWide {
  static constexpr int kRows = 288, kSlotRows = 128, kStages = 3, kXStages = 5;
  static constexpr int kBlocks = 1, kRegisters = 240,
                       kLoadRegisters = 24;  // 2 x 240 + 24 = 3 x 168 at entry
};
// Few rows of an expert: bound by the bytes of the weights; two blocks share a multiprocessor.
struct ExpertNarrow {
  static constexpr int kRows = 40, kSlotRows = 40, kStages = 4, kXStages = 4;
  static constexpr int kBlocks = 2, kRegisters = 104,
                       kLoadRegisters = 32;  // 2 x 104 + 32 = 3 x 80 at entry
};

// Rows sorted by expert. Each expert's run starts at a multiple of kRunAlignment rows, so that vector loads of per-row
// numbers are aligned.
struct ExpertSort {
  static constexpr int kRunAlignment = 8;
  static constexpr int kExpertsMax = 256;
  static constexpr int kTop = 8;

  const int* experts;    // [rows, k] global ids
  const float* weights;  // [rows, k]
  int rows, k;
  int first_expert, experts_held;

  int* positions;         // [rows, k]: place in the sorted order, -1: held elsewhere
  float* sorted_weights;  // [positions]
  int4* tiles;            // [tiles]: expert (of those held), first position, valid rows, expert_shape
  int* tile_count;        // [1]
  int tile_rows;          // at most; of the products that follow
  bool largest_first;     // tiles in the order of their rows; otherwise in that of the experts
};
void launch_expert_sort(const ExpertSort& params, cudaStream_t stream);

// One grouped matrix product over the tiles: gate_up with the activation, or down with the routing weight. Both inputs
// and the activations lie in the order of experts_products_sm90.cuh, padded to whole steps of 128.
struct ExpertProduct {
  static constexpr int kWidths = 8;

  // e4m3 [steps, positions, 128], boxes of 8, 16 .. 64 rows by the steps of a stage of weights: two (mxfp4) or one.
  CUtensorMap x[kWidths];
  CUtensorMap weight;                 // mxfp4: [experts, out, in / 2] bytes; fp8: [experts, out, in]
  const float* x_scales;              // gate_up: [in / 256, positions_stride], one a row and 256 of `in`; down: 1 / 8
  const std::uint8_t* weight_scales;  // mxfp4: [experts, in / 256, out_padded, 8] e8m0
  const float* weight_bases;          // [experts, out_padded / 128, stages]: in / 256 (mxfp4), in / 128 (fp8)
  const std::uint16_t* bias;          // [experts, out] bf16; null: none
  const int4* tiles;
  const int* tile_count;
  const float* sorted_weights;  // down: routing weight of each position
  void* out;                    // gate_up: e4m3 [positions, out / 2 padded]; down: bf16 [positions, out]
  int in, out_features, out_padded, positions_stride;
  float swiglu_limit;
};

enum class ExpertStage { kGateUp, kDown };
enum class ExpertForm { kMxfp4, kFp8 };

template <ExpertStage kStage, ExpertForm kForm, class Shape>
void launch_expert_product(const ExpertProduct& params, int multiprocessors, cudaStream_t stream);

struct ExpertPrepare {
  const std::uint8_t* payload;        // mxfp4: [experts, out, in / 2]
  const std::uint8_t* stored_scales;  // mxfp4: [experts, out, in / 32] e8m0
  const float* stored_bases;          // fp8: [experts, out tiles, in tiles]; null: mxfp4
  std::uint8_t* scales;               // mxfp4: [experts, in / 256, 128 * out tiles, 8]
  float* bases;                       // [experts, out tiles, in / 256 (mxfp4) or in / 128 (fp8)]
  int* inexact_tiles;                 // [1], added to
  int experts, out_features, in;
};
void launch_expert_prepare(const ExpertPrepare& params, cudaStream_t stream);

struct ExpertQuantize {
  const std::uint16_t* x;  // [rows, hidden] bf16
  const int* positions;    // [rows, k]
  std::uint8_t* sorted;    // [positions, hidden padded] e4m3, in the order of the products
  float* scales;           // [steps of 256, positions_stride]
  int rows, k, hidden, positions_stride;
};
void launch_expert_quantize(const ExpertQuantize& params, cudaStream_t stream);

struct ExpertCombine {
  const std::uint16_t* weighted;  // [positions, hidden] bf16
  const int* positions;           // [rows, k]
  std::uint16_t* y;               // [rows, hidden] bf16
  int rows, k, hidden;
};
void launch_expert_combine(const ExpertCombine& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
