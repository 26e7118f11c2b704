// Rows of activations as floats, whatever they are stored as (f32 or bf16).
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/tensor.h"

namespace rose::ops {

// out[i] = tensor[row, begin + i]
inline void read_row(const Tensor& tensor, std::int64_t row, std::int64_t begin, std::int64_t count, float* out) {
  if (tensor.dtype() == DType::kF32) {
    const float* from = tensor.row<float>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i) out[i] = from[i];
  } else {
    const Bf16* from = tensor.row<Bf16>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(from[i]);
  }
}

// tensor[row, begin + i] = values[i], rounded to the tensor's dtype
template <class T>
void write_row(const Tensor& tensor, std::int64_t row, std::int64_t begin, std::int64_t count, const T* values) {
  if (tensor.dtype() == DType::kF32) {
    float* to = tensor.row<float>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(values[i]);
  } else {
    Bf16* to = tensor.row<Bf16>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_bf16(static_cast<float>(values[i]));
  }
}

inline double bias_at(const Tensor& bias, std::int64_t index) {
  return bias.empty() ? 0.0 : static_cast<double>(to_float(static_cast<const Bf16*>(bias.raw())[index]));
}

}  // namespace rose::ops
