// Test and benchmark inputs: tensors that own their memory, filled from a seed.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::testing {

// A tensor with its memory, every byte `poison` at first: an output that stays unwritten shows (0xff: NaN in all
// formats).
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(DType dtype, std::initializer_list<std::int64_t> sizes, int poison = 0xff) {
    std::int64_t elements = 1;
    for (const std::int64_t size : sizes) elements *= size;
    const auto bytes = static_cast<std::size_t>(elements) * dtype_bytes(dtype);
    memory_ = std::make_unique<unsigned char[]>(bytes + 1);
    std::memset(memory_.get(), poison, bytes);
    tensor_ = Tensor(memory_.get(), dtype, Device{}, sizes);
  }

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::unique_ptr<unsigned char[]> memory_;
  Tensor tensor_;
};

inline std::int64_t elements_of(const Tensor& tensor) { return tensor.elements(); }

// Element i as a double, whatever the (floating) dtype.
inline double element(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return static_cast<const float*>(tensor.raw())[i];
    case DType::kBf16:
      return to_float(static_cast<const Bf16*>(tensor.raw())[i]);
    case DType::kF8E4M3:
      return to_float(static_cast<const F8E4M3*>(tensor.raw())[i]);
    default:
      return static_cast<double>(static_cast<const std::int32_t*>(tensor.raw())[i]);
  }
}

inline void set_element(const Tensor& tensor, std::int64_t i, float value) {
  switch (tensor.dtype()) {
    case DType::kF32:
      static_cast<float*>(tensor.raw())[i] = value;
      break;
    case DType::kBf16:
      static_cast<Bf16*>(tensor.raw())[i] = to_bf16(value);
      break;
    case DType::kF8E4M3:
      static_cast<F8E4M3*>(tensor.raw())[i] = to_f8e4m3(value);
      break;
    default:
      static_cast<std::int32_t*>(tensor.raw())[i] = static_cast<std::int32_t>(value);
  }
}

// Uniform in [-size, size).
inline float random_value(std::uint64_t seed, std::uint64_t i, float size) {
  return (2.0f * random_unit(seed, i) - 1.0f) * size;
}

inline OwnedTensor random_tensor(DType dtype, std::initializer_list<std::int64_t> sizes, std::uint64_t seed,
                                 float size = 1) {
  OwnedTensor tensor(dtype, sizes);
  for (std::int64_t i = 0; i < tensor->elements(); ++i) {
    set_element(*tensor, i, random_value(seed, static_cast<std::uint64_t>(i), size));
  }
  return tensor;
}

inline OwnedTensor int_tensor(const std::vector<std::int32_t>& values) {
  OwnedTensor tensor(DType::kI32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) tensor->as<std::int32_t>()[i] = values[i];
  return tensor;
}

// A weight with its memory. Contents: bf16 uniform in [-1, 1); fp8 all finite codes, scales 2^-8 .. 2^1; mxfp4 all 16
// codes, scales 2^-8 .. 2^1 varying within a row.
struct OwnedWeight {
  OwnedTensor payload, scales, bias;
  Weight weight;

  const Weight& operator*() const { return weight; }
};

struct WeightShape {
  std::int64_t experts = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;
  bool bias = true;
};

OwnedWeight random_weight(WeightFormat format, const WeightShape& shape, std::uint64_t seed);

}  // namespace rose::ops::testing
