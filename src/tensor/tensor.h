// A view of numbers that somebody else owns: pointer, dtype, device, up to four sizes and strides (in elements).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "device/device.h"
#include "tensor/dtype.h"

namespace rose {

class Tensor {
 public:
  static constexpr int kRankMax = 4;

  Tensor() = default;  // empty: "nothing given"
  Tensor(void* pointer, DType dtype, Device device, std::initializer_list<std::int64_t> sizes);  // row-major

  bool empty() const { return pointer_ == nullptr; }
  int rank() const { return rank_; }
  std::int64_t size(int dim) const {  // negative: from the end
    const int d = dim < 0 ? dim + rank_ : dim;
    CHECK(d >= 0 && d < rank_, "dim {} of {}", dim, describe());
    return sizes_[static_cast<std::size_t>(d)];
  }
  std::int64_t stride(int dim) const {
    const int d = dim < 0 ? dim + rank_ : dim;
    CHECK(d >= 0 && d < rank_, "dim {} of {}", dim, describe());
    return strides_[static_cast<std::size_t>(d)];
  }
  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * dtype_bytes(dtype_); }
  bool contiguous() const;

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  void* raw() const { return pointer_; }

  // The pointer as T; the dtype must be T's.
  template <class T>
  T* as() const {
    CHECK(dtype_ == dtype_of<T>(), "{} read as {}", describe(), dtype_name(dtype_of<T>()));
    return static_cast<T*>(pointer_);
  }
  // First element of row `index` (all dims but the first are the row).
  template <class T>
  T* row(std::int64_t index) const {
    return as<T>() + index * strides_[0];
  }

  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
  Tensor rows(std::int64_t begin, std::int64_t end) const { return slice(0, begin, end); }
  Tensor reshape(std::initializer_list<std::int64_t> sizes) const;  // contiguous only; one size may be -1

  // The same shape over other memory.
  Tensor on(void* pointer, Device device) const {
    Tensor view = *this;
    view.pointer_ = pointer;
    view.device_ = device;
    return view;
  }

  std::string describe() const;  // "bf16[8, 2880] on cpu"

 private:
  void* pointer_ = nullptr;
  DType dtype_ = DType::kF32;
  Device device_;
  int rank_ = 0;
  std::array<std::int64_t, kRankMax> sizes_{};
  std::array<std::int64_t, kRankMax> strides_{};
};

}  // namespace rose
