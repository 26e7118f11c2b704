// What the launcher hands to the kernels with swapped operands, and the shapes both agree on.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct LinearSwappedParams {
  CUtensorMap weight;          // [out, in] bf16 or e4m3, boxes of 128 x 128 bytes
  CUtensorMap x;               // [rows, in] of the same type, boxes of tile_rows x 128 bytes
  CUtensorMap x_scales;        // e4m3: [groups, rows] f32, boxes of 1 x tile_rows
  const float* weight_scales;  // e4m3: [ceil(out / 128), ceil(in / 128)]
  const std::uint16_t* bias;   // [out] bf16, or null
  void* y;                     // [rows, out] f32 or bf16, rows y_stride elements apart
  long y_stride;
  bool y_is_f32;
  bool y_pairs;  // two neighbouring features, the first even, may be stored at once
  bool y_quads;  // f32 y: four features, the first a multiple of 4, may be stored at once
  int rows, out;
  int steps;   // of 128 bytes along `in`
  int splits;  // blocks of a cluster, each with its share of the steps
};

struct LinearSwappedShape {
  static constexpr int kFeatures = 128;  // of a tile: two warpgroups of 64
  static constexpr int kStepBytes = 128;
  static constexpr int kSplitsMax = 8;
  // Rows of a tile, the N of WGMMA: 8, 16, 32, 64, 128, and 256 in bf16. Of few features there are few tiles: those
  // have fewer rows, and all multiprocessors something to do.
  static constexpr int tile_rows(int rows, int out, bool fp8) {
    constexpr int kBlocksWanted = 128;
    int tile = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : rows <= 128 || fp8 ? 128 : 256;
    const int feature_tiles = (out + kFeatures - 1) / kFeatures;
    while (tile > 16 && 2 * ((rows + tile - 1) / tile) * feature_tiles * kSplitsMax <= kBlocksWanted) tile /= 2;
    return tile;
  }
};

// How many clusters of `splits` blocks run at once with one block an SM.
int linear_swapped_clusters(int splits);
// The tile has LinearSwappedShape::tile_rows rows; the maps' boxes follow it.
void launch_linear_swapped(const LinearSwappedParams& params, bool fp8, int multiprocessors, cudaStream_t stream);

}  // namespace rose::ops::cuda
