// What the launcher hands to the kernels for few rows, and the shapes both agree on.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace rose::ops::cuda {

struct LinearSmallParams {
  const std::uint16_t* x;       // [rows, in] bf16, rows x_stride elements apart, 16-byte aligned
  const std::uint16_t* weight;  // [out, in] bf16, dense, 16-byte aligned
  const std::uint16_t* bias;    // [out] bf16, or null
  void* y;                      // [rows, out] f32 or bf16, rows y_stride elements apart
  long x_stride, y_stride;
  bool y_is_f32;
  int rows, out, in;   // rows 1 .. 64, in a multiple of 8
  int steps, x_pitch;  // set by the launch, from LinearSmallShape
};

// Who splits `in` into its eight interleaved parts: the warps of a block, or the blocks of a cluster.
enum class LinearSmallSplit { kWarps, kCluster };

struct LinearSmallShape {
  static constexpr int kRowsMax = 64;
  static constexpr int kWarpsRowsMax = 16;  // with LinearSmallSplit::kWarps
  static constexpr int kParts = 8;          // of `in`; warps in a block; blocks in a cluster
  static constexpr int kStepWidth = 64;  // elements of `in` that a warp takes in one step: one 128-byte line a feature
  static constexpr int kFeatures = 16;   // of a warp's tile
  static constexpr int kThreads = 32 * kParts;
  static constexpr int kSharedMax = 227 * 1024;

  // Steps of every part; what lies beyond `in` counts as zeros.
  static constexpr int steps(int in) { return (in + kParts * kStepWidth - 1) / (kParts * kStepWidth); }
  // Rows of x held in shared memory lie this many bytes apart: an odd number of half lines, so that the eight rows that
  // a warp reads at once fall into different banks.
  static constexpr int x_pitch(int in, LinearSmallSplit split) {
    return steps(in) * (split == LinearSmallSplit::kWarps ? kParts : 1) * kStepWidth * 2 + 64;
  }
  // Groups of eight rows that the kernel is built for: 1, 2, 4 or 8.
  static constexpr int column_blocks(int rows) { return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8; }
  // Bytes of one set of partial sums: eight parts of 16 features x 8 rows in f32.
  static constexpr int partial_bytes(int column_blocks) { return kParts * column_blocks * 512; }
  static constexpr long shared_bytes(int rows, int in, LinearSmallSplit split) {
    const int blocks = column_blocks(rows), held = blocks == 1 ? rows : blocks * 8;
    return static_cast<long>(partial_bytes(blocks)) * (split == LinearSmallSplit::kWarps ? 2 : 1) +
           static_cast<long>(held) * x_pitch(in, split);
  }
};

// shared_bytes() of the shape must not exceed kSharedMax; kWarps takes at most kWarpsRowsMax rows.
void launch_linear_small(const LinearSmallParams& params, LinearSmallSplit split, int multiprocessors,
                         cudaStream_t stream);

}  // namespace rose::ops::cuda
