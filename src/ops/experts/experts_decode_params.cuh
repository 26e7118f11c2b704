// What the launcher hands to the expert kernels for few rows. An entry is one row at one of its experts: row * k + i.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct ExpertDecodeLimits {
  static constexpr int kRows = 64;
  static constexpr int kTop = 8;
  static constexpr int kGroups = 90;  // of 32 inputs: what the registers of a block hold of the activations
  static constexpr int kTileFeatures = 16;
};

// One of the two products.
struct ExpertDecode {
  CUtensorMap scales;           // e8m0 [experts, in / 256, out_padded * 8], boxes of 1 x all x 16 features
  const std::uint8_t* payload;  // [experts, out, in / 2], low nibble = even element
  const std::uint16_t* bias;    // [experts, out] bf16; null: none
  const int* experts;           // [rows, k] global ids
  const float* routing;         // [rows, k]
  const std::uint16_t* x;       // bf16; gate_up: [rows, in]; down: [rows * k, in]
  void* out;                    // gate_up: bf16 [rows * k, out / 2]; down: f32 [rows * k, out]
  int rows, k;
  int first_expert, experts_held;
  int in, out_features;
  float swiglu_limit;
};

void launch_expert_decode_gate_up(const ExpertDecode& params, int multiprocessors, cudaStream_t stream);
void launch_expert_decode_down(const ExpertDecode& params, int multiprocessors, cudaStream_t stream);

struct ExpertDecodeCombine {
  const float* weighted;  // [rows * k, hidden]
  const int* experts;     // [rows, k]
  std::uint16_t* y;       // [rows, hidden] bf16
  int rows, k, hidden;
  int first_expert, experts_held;
};
void launch_expert_decode_combine(const ExpertDecodeCombine& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
