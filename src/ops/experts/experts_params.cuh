// What the launcher hands to the expert kernels, and the shapes both agree on.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

// Rows sorted by expert. Each expert's run starts at a multiple of kRunAlignment rows, so that vector loads of per-row
// numbers are aligned.
struct ExpertSort {
  static constexpr int kRunAlignment = 8;
  static constexpr int kTileRows = 128;

  const int* experts;    // [rows, k] global ids
  const float* weights;  // [rows, k]
  int rows, k;
  int first_expert, experts_held;

  int* positions;         // [rows, k]: place in the sorted order, -1: held elsewhere
  float* sorted_weights;  // [positions]
  int* tile_count;        // [1]
  int4* tiles;            // [tiles]: expert (of those held), first position, valid rows, -
};

// One grouped matrix product over the tiles: gate_up with the activation, or down with the routing weight.
struct ExpertProduct {
  CUtensorMap x;                      // [positions, in] e4m3, boxes of 128 x 128
  CUtensorMap weight;                 // mxfp4: [experts, out, in / 2] bytes, boxes of 1 x kN x 64
  const float* x_scales;              // [in blocks, positions_stride], one a row and 128 of `in`; null: 1 / 8
  const std::uint8_t* weight_scales;  // [experts, in blocks, out_padded, 4] e8m0
  const float* weight_bases;          // [experts, out blocks, bases_stride]: power-of-two base of each 128 x 128 tile
  const std::uint16_t* bias;          // [experts, out] bf16
  const int4* tiles;
  const int* tile_count;
  const float* sorted_weights;  // down: routing weight of each position
  void* out;                    // gate_up: e4m3 [positions, out / 2]; down: bf16 [positions, out]
  int in, out_features, out_padded, positions_stride, bases_stride;
  float swiglu_limit;
};

enum class ExpertStage { kGateUp, kDown };

template <ExpertStage kStage>
struct ExpertConfig {
  static constexpr int kM = ExpertSort::kTileRows;
  static constexpr int kN = 160;  // 5760 = 36 x 160, 2880 = 18 x 160
  static constexpr int kK = 128;  // e4m3: 128 bytes, the swizzle's width; 4 groups of 32
  static constexpr int kConsumers = kM / 64;
  static constexpr int kThreads = 128 * (2 + kConsumers);
  static constexpr int kXStages = 4, kPackedStages = 4, kWeightStages = 3;
  static constexpr int kXBytes = kM * kK;
  static constexpr int kPackedBytes = kN * kK / 2;
  static constexpr int kShiftBytes = kN * 4;
  static constexpr int kWeightBytes = kN * kK;
  static constexpr int kBases = 3;  // 128-row weight tiles that kN rows can touch
  // Row of the store buffer, padded by 16 bytes so that rows start in different banks.
  static constexpr int kStoreRow = (kStage == ExpertStage::kGateUp ? kN / 2 : kN * 2) + 16;
};

template <ExpertStage kStage>
void launch_expert_product(const ExpertProduct& params, int blocks, cudaStream_t stream);
void launch_expert_sort(const ExpertSort& params, cudaStream_t stream);

struct ExpertPrepare {
  const std::uint8_t* payload;        // mxfp4: [experts, out, in / 2]
  const std::uint8_t* stored_scales;  // mxfp4: [experts, out, in / 32] e8m0
  const float* stored_bases;          // fp8: [experts, out tiles, in tiles]; null: mxfp4
  std::uint8_t* scales;               // mxfp4: [experts, in tiles, 128 * out tiles, 4]
  float* bases;                       // [experts, out tiles, bases_stride]
  int* inexact_tiles;                 // [1], added to
  int experts, out_features, in, bases_stride;
};
void launch_expert_prepare(const ExpertPrepare& params, cudaStream_t stream);

struct ExpertQuantize {
  const std::uint16_t* x;  // [rows, hidden] bf16
  const int* positions;    // [rows, k]
  std::uint8_t* sorted;    // [positions, hidden] e4m3
  float* scales;           // [blocks of 128, positions_stride]
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
