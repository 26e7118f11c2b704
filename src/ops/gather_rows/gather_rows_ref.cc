#include <cstring>

#include "base/check.h"
#include "ops/gather_rows/gather_rows.h"

namespace rose::ops::ref {

void gather_rows(const Stream&, const Tensor& x, const Tensor& rows, const Tensor& out) {
  const std::size_t element = dtype_bytes(x.dtype());
  const auto* from = static_cast<const std::byte*>(x.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    const std::int32_t row = rows.as<std::int32_t>()[r];
    CHECK(row >= 0 && row < x.size(0), "row {} of {}", row, x.size(0));
    std::memcpy(to + static_cast<std::size_t>(r * out.stride(0)) * element,
                from + static_cast<std::size_t>(row * x.stride(0)) * element,
                static_cast<std::size_t>(x.size(1)) * element);
  }
}

}  // namespace rose::ops::ref
