#include <cstring>

#include "base/check.h"
#include "ops/copy_pages/copy_pages.h"

namespace rose::ops::ref {
namespace {

void copy_page(const Tensor& from, std::int64_t source, const Tensor& to, std::int64_t destination) {
  CHECK(source >= 0 && source < from.size(0), "page {} of {}", source, from.size(0));
  CHECK(destination >= 0 && destination < to.size(0), "page {} of {}", destination, to.size(0));
  const std::size_t bytes = static_cast<std::size_t>(from.stride(0)) * dtype_bytes(from.dtype());
  // memmove: a page copied onto itself is a no-op, not undefined.
  std::memmove(static_cast<std::byte*>(to.raw()) + static_cast<std::size_t>(destination) * bytes,
               static_cast<const std::byte*>(from.raw()) + static_cast<std::size_t>(source) * bytes, bytes);
}

}  // namespace

void copy_pages(const Stream&, const KvLayer& from, KvLayer& to, const Tensor& pairs) {
  for (std::int64_t i = 0; i < pairs.size(0); ++i) {
    const auto* pair = pairs.row<std::int32_t>(i);
    copy_page(from.keys, pair[0], to.keys, pair[1]);
    copy_page(from.values, pair[0], to.values, pair[1]);
  }
}

}  // namespace rose::ops::ref
