// The CUDA side of route.h; arguments have been checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"
#include "ops/route/route.h"

namespace rose::ops::cuda {

// Device memory for the logits (f32) of a step of up to `rows` rows.
std::size_t route_scratch_bytes(std::int64_t rows, std::int64_t experts);

// x: bf16, rows 16-byte aligned; up to 256 experts, up to 32 a row. scratch: route_scratch_bytes(x.size(0),
// router.out), 16-byte aligned, contents undefined before; afterwards the logits, [rows, experts]. A row's result does
// not depend on the other rows; kernels differ by the number of rows (up to 128, or 1024 of at most 64 experts; up to
// 2048; more), and so may the last bits of their logits.
void route(const Stream& stream, const Tensor& x, const Weight& router, Routing& routing, void* scratch);

// The selection alone. logits: [rows, experts] f32, dense.
void choose_experts(const Stream& stream, const Tensor& logits, Routing& routing);

}  // namespace rose::ops::cuda
