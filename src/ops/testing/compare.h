// Compares a computed tensor with a more precise one, element by element.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace rose::ops::testing {

// Allowed |got - want| of element i, given want.
using Bound = std::function<double(std::int64_t i, double want)>;

// |got - want| <= absolute + relative * |want|
Bound bound(double absolute, double relative);

// Empty when every element is within its bound, and NaNs and infinities stand in the same places with the same sign.
// Otherwise the counts, and the worst element: its index in each dim, both values, difference and bound. A bound that
// is itself NaN is an error, never a pass. Contiguous tensors of equal sizes; f32 or bf16.
std::string difference(const Tensor& got, const Tensor& want, const Bound& bound);

// Empty when both hold equal bits.
std::string bit_difference(const Tensor& got, const Tensor& want);

}  // namespace rose::ops::testing
