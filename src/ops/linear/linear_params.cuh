// What the launcher hands to the linear kernels.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace rose::ops::cuda {

struct LinearParams {
  CUtensorMap x;              // [rows, in] bf16, boxes of kM x 64
  CUtensorMap weight;         // [out, in] bf16, boxes of kN x 64
  CUtensorMap y;              // [rows, out] bf16, boxes of 64 x 64
  const std::uint16_t* bias;  // [out] bf16, or null
  int rows, out, in;
};

}  // namespace rose::ops::cuda
