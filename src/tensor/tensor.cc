#include "tensor/tensor.h"

namespace rose {

Tensor::Tensor(void* pointer, DType dtype, Device device, std::initializer_list<std::int64_t> sizes)
    : pointer_(pointer), dtype_(dtype), device_(device), rank_(static_cast<int>(sizes.size())) {
  CHECK(rank_ >= 1 && rank_ <= kRankMax, "{} dims", rank_);
  std::size_t dim = 0;
  for (const std::int64_t size : sizes) {
    CHECK(size >= 0, "dim {} is {}", dim, size);
    sizes_[dim++] = size;
  }
  std::int64_t stride = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    strides_[static_cast<std::size_t>(d)] = stride;
    stride *= sizes_[static_cast<std::size_t>(d)];
  }
}

std::int64_t Tensor::elements() const {
  if (rank_ == 0) return 0;
  std::int64_t product = 1;
  for (int d = 0; d < rank_; ++d) product *= sizes_[static_cast<std::size_t>(d)];
  return product;
}

bool Tensor::contiguous() const {
  std::int64_t stride = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    if (sizes_[i] != 1 && strides_[i] != stride) return false;
    stride *= sizes_[i];
  }
  return true;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  CHECK(dim >= 0 && dim < rank_ && 0 <= begin && begin <= end && end <= size(dim), "slice [{}, {}) of dim {} of {}",
        begin, end, dim, describe());
  Tensor part = *this;
  part.sizes_[static_cast<std::size_t>(dim)] = end - begin;
  part.pointer_ =
      static_cast<std::byte*>(pointer_) + static_cast<std::size_t>(begin * stride(dim)) * dtype_bytes(dtype_);
  return part;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> sizes) const {
  CHECK(contiguous(), "reshape of {}, which is not contiguous", describe());
  std::int64_t known = 1;
  int open = 0;
  for (const std::int64_t size : sizes) {
    if (size == -1)
      ++open;
    else
      known *= size;
  }
  CHECK(open <= 1 && sizes.size() <= kRankMax, "{} open sizes, {} dims", open, sizes.size());
  Tensor view = *this;
  view.rank_ = static_cast<int>(sizes.size());
  std::size_t dim = 0;
  for (const std::int64_t size : sizes) view.sizes_[dim++] = size == -1 ? (known == 0 ? 0 : elements() / known) : size;
  std::int64_t stride = 1;
  for (int d = view.rank_ - 1; d >= 0; --d) {
    view.strides_[static_cast<std::size_t>(d)] = stride;
    stride *= view.sizes_[static_cast<std::size_t>(d)];
  }
  CHECK(view.elements() == elements(), "reshape of {} to {}", describe(), view.describe());
  return view;
}

std::string Tensor::describe() const {
  if (rank_ == 0) return "empty tensor";
  std::string text = fmt::format("{}[", dtype_name(dtype_));
  for (int d = 0; d < rank_; ++d) text += fmt::format("{}{}", d == 0 ? "" : ", ", sizes_[static_cast<std::size_t>(d)]);
  return text + fmt::format("] on {}", device_.name());
}

}  // namespace rose
