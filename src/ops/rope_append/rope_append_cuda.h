// The CUDA side of rope_append.h; arguments have been checked. bf16, the cache bf16 or e4m3; head_dim 64, rope.table on
// the device. The angle position * frequency is the reference's f32 product; cosine and sine are good to 2^-22.
//
// A row whose slot is not in the cache (-1 for padding) is rotated and not appended: a kernel cannot end the process
// the way the reference does.
#pragma once

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "ops/rope_append/rope_append.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

void rope_append(const Stream& stream, const Tensor& qkv, const Tensor& positions, const Tensor& slots,
                 const Rope& rope, KvLayer& kv, const Tensor& q);

}  // namespace rose::ops::cuda
