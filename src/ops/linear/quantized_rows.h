// Activations as FP8 products read them: q[r, c] * scales[c / 128, r].
#pragma once

#include "tensor/tensor.h"

namespace rose::ops::cuda {

// The scale is the largest magnitude of a row's 128 columns (the last group may be shorter) over 448; 1 for zeros.
struct QuantizedRows {
  static constexpr int kGroup = 128;
  const Tensor& q;       // [rows, columns] f8_e4m3
  const Tensor& scales;  // [(columns + 127) / 128, at least rows] f32
};

}  // namespace rose::ops::cuda
