// What the launcher hands to the routing kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct RouteLogits {
  const std::uint16_t* x;       // [rows, in] bf16, rows x_stride elements apart, 16-byte aligned
  const std::uint16_t* weight;  // [experts, in] bf16, dense, 16-byte aligned
  const std::uint16_t* bias;    // [experts] bf16, or null
  float* logits;                // [rows, experts], dense
  long x_stride;
  int rows, experts, in;  // in a multiple of 8
};

// Many rows.
void launch_route_logits(const RouteLogits& params, int multiprocessors, cudaStream_t stream);

struct RouteChoice {
  static constexpr int kExpertsMax = 256;
  static constexpr int kChosenMax = 32;

  const float* logits;   // [rows, experts], dense
  std::int32_t* chosen;  // [rows, k], rows chosen_stride apart
  float* weights;        // [rows, k], rows weights_stride apart
  long chosen_stride, weights_stride;
  int rows, experts, k;
};

void launch_route_choice(const RouteChoice& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
