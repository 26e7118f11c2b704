#include "ops/copy_pages/copy_pages.h"

#include "ops/check.h"
#include "ops/copy_pages/copy_pages_cuda.h"

namespace rose::ops {
namespace {

void check_layer(const Stream& stream, std::string_view name, const KvLayer& layer, const Tensor& like) {
  check_tensor(stream, name, layer.keys, {like.dtype()}, {-1, like.size(1), like.size(2), like.size(3)});
  check_tensor(stream, name, layer.values, {like.dtype()},
               {layer.keys.size(0), like.size(1), like.size(2), like.size(3)});
  CHECK(layer.keys.contiguous() && layer.values.contiguous(), "{}: {} is not contiguous", name, layer.keys.describe());
}

}  // namespace

void copy_pages(const Stream& stream, const KvLayer& from, KvLayer& to, const Tensor& pairs) {
  CHECK(from.keys.rank() == 4, "copy_pages: from {}", from.keys.describe());
  check_layer(stream, "copy_pages: from", from, from.keys);
  check_layer(stream, "copy_pages: to", to, from.keys);
  check_tensor(stream, "copy_pages: pairs", pairs, {DType::kI32}, {-1, 2});
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::copy_pages(stream, from, to, pairs);
      return;
    case DeviceKind::kCuda:
      cuda::copy_pages(stream, from, to, pairs);
      return;
  }
}

}  // namespace rose::ops
