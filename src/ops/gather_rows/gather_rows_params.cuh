// What the launcher hands to the kernel of gather_rows.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct GatherRowsParams {
  static constexpr int kThreads = 256;
  static constexpr int kPieceUnits = 4 * kThreads;  // units of a block

  const std::uint8_t* x;              // [sources, width]
  const int* rows;                    // [count]
  std::uint8_t* out;                  // [count, width]
  std::int64_t x_stride, out_stride;  // bytes
  int unit_bytes;                     // 16 where rows begin and end at multiples of 16 bytes, else 2
  int width;                          // units
  int sources, count;
  int pieces;  // blocks a row
};
void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
