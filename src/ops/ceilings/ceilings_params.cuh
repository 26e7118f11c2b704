// Kernels that measure what a GPU can do, and fill memory with random numbers to measure with.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace rose::ops::cuda {

struct CeilingsConfig {
  static constexpr int kThreads = 256;      // of the memory kernels
  static constexpr int kBlocksPerSm = 8;    // of the memory kernels
  static constexpr int kLoadsInFlight = 8;  // 16 bytes each, a thread
  static constexpr int kWarpgroups = 2;     // of the matrix kernel; each multiplies 64 rows
  static constexpr int kColumns = 256;      // of the matrix kernel
  static constexpr int kRowBytes = 128;     // a row of a tile: 64 numbers of bf16, 128 of e4m3
  static constexpr int kStages = 4;         // tiles in shared memory, so that operands change
  static constexpr int kTileRows = kWarpgroups * 64 + kColumns;
  static constexpr int kSharedBytes = kStages * kTileRows * kRowBytes;
};

enum class FillKind : std::uint8_t { kBf16, kF32, kBytes };

struct FillParams {
  void* to = nullptr;
  std::size_t count = 0;  // numbers
  std::uint64_t seed = 0;
  float size = 1;         // kBf16, kF32: uniform in [-size, size)
  int low = 0, high = 0;  // kBytes: uniform in [low, high]
};

void launch_fill(FillKind kind, const FillParams& params, int blocks, cudaStream_t stream);
void launch_nothing(int blocks, cudaStream_t stream);
// vectors: of 16 bytes. sink: one word, written only where all the words read cancel to a certain value.
void launch_read(const uint4* from, std::size_t vectors, unsigned* sink, int blocks, cudaStream_t stream);
void launch_copy(const uint4* from, uint4* to, std::size_t vectors, int blocks, cudaStream_t stream);
// sink: blocks x threads floats.
void launch_matrix(bool e4m3, int iterations, float* sink, int blocks, cudaStream_t stream);

}  // namespace rose::ops::cuda
