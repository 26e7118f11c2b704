// What the launcher hands to the kernel of rope_append.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct RopeAppendParams {
  static constexpr int kHeadDim = 64;
  static constexpr int kThreads = 256;
  static constexpr int kWarpHeads = 8;  // heads that one warp takes at a time

  const std::uint16_t* qkv;  // [rows, (heads + 2 * kv_heads) * 64] bf16, rows at multiples of 16 bytes
  const int* positions;      // [rows]
  const int* slots;          // [rows]
  const float* frequencies;  // [32], radians a position
  std::uint16_t* q;          // [rows, heads, 64] bf16
  void* keys;                // [slots_all / page_size, kv_heads, page_size, 64] bf16, or e4m3
  void* values;
  std::int64_t qkv_stride;  // elements
  std::int64_t slots_all;
  float concentration;
  float query_factor;
  int rows, heads, kv_heads, page_size;
};
void launch_rope_append(const RopeAppendParams& params, cudaStream_t stream);
void launch_rope_append_e4m3(const RopeAppendParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
