// The CUDA side of copy_pages.h; arguments have been checked. Pages are multiples of 16 bytes. `from` and `to` are the
// same layer or lie apart. A pair that names a page that does not exist, as padding may, is passed over.
#pragma once

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

void copy_pages(const Stream& stream, const KvLayer& from, KvLayer& to, const Tensor& pairs);

}  // namespace rose::ops::cuda
