// Copies whole pages of one layer: for sharing by copy, and for moving a prompt's pages to another worker.
// Pairs are copied in order; a page written by one pair may be read by a later one.
#pragma once

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "tensor/tensor.h"

namespace rose::ops {

void copy_pages(const Stream& stream, const KvLayer& from, KvLayer& to,
                const Tensor& pairs);  // [n, 2] i32: page in `from`, page in `to`

namespace ref {
void copy_pages(const Stream& stream, const KvLayer& from, KvLayer& to, const Tensor& pairs);
}

}  // namespace rose::ops
