// Argument checks of the operations: done once, before the dispatch, so that neither a reference nor a kernel repeats
// them. Every failure prints the tensor's name, what it is and what it should be. A failed check is our bug, never a
// request's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

// Rank and sizes (-1: any), one of `dtypes`, the stream's device, dense innermost dim. Tensors without elements may be
// null.
void check_tensor(const Stream& stream, std::string_view name, const Tensor& tensor,
                  std::initializer_list<DType> dtypes, std::initializer_list<std::int64_t> sizes);

// [rows, width] of activations: f32 or bf16.
void check_activations(const Stream& stream, std::string_view name, const Tensor& tensor, std::int64_t rows,
                       std::int64_t width);

// Payload, scales and bias against format, experts, out and in.
void check_weight(const Stream& stream, std::string_view name, const Weight& weight);

// The branch of an operation that this build has no kernel for.
[[noreturn]] void no_kernel(std::string_view operation, const Stream& stream);

}  // namespace rose::ops
