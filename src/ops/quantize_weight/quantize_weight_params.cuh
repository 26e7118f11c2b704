// What the launcher hands to the kernel of quantize_weight.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct QuantizeWeightParams {
  const std::uint16_t* from;  // [out, in] bf16
  std::uint8_t* payload;      // [out, in] e4m3
  float* scales;              // [ceil(out / 128), ceil(in / 128)]
  int* not_finite;            // [1]
  int out, in;
};
void launch_quantize_weight(const QuantizeWeightParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
