#include "ops/embed/embed_cuda.h"

#include "device/cuda/gpu.h"
#include "ops/embed/embed_params.cuh"

namespace rose::ops::cuda {
namespace {

bool rows_aligned(const Tensor& tensor) {
  const auto row_bytes = static_cast<std::size_t>(tensor.stride(0)) * dtype_bytes(tensor.dtype());
  return (reinterpret_cast<std::uintptr_t>(tensor.raw()) | row_bytes) % 16 == 0;
}

}  // namespace

void resolve_tokens(const Stream& stream, const Tensor& sources, const Tensor& last_tokens, const Tensor& tokens) {
  if (tokens.size(0) == 0) return;
  launch_resolve_tokens({.sources = sources.as<std::int32_t>(),
                         .last_tokens = last_tokens.as<std::int32_t>(),
                         .tokens = tokens.as<std::int32_t>(),
                         .rows = static_cast<int>(tokens.size(0)),
                         .slots = static_cast<int>(last_tokens.size(0))},
                        rose::cuda::native_stream(stream));
}

void embed(const Stream& stream, const Tensor& tokens, const Tensor& embedding, const Tensor& out) {
  CHECK(embedding.size(1) % 8 == 0 && rows_aligned(embedding) && rows_aligned(out), "embed on {}: {} to {}",
        stream.device().name(), embedding.describe(), out.describe());
  if (out.elements() == 0) return;
  launch_embed({.tokens = tokens.as<std::int32_t>(),
                .embedding = static_cast<const std::uint16_t*>(embedding.raw()),
                .out = out.raw(),
                .embedding_stride = embedding.stride(0),
                .out_stride = out.stride(0),
                .rows = static_cast<int>(tokens.size(0)),
                .vocabulary = static_cast<int>(embedding.size(0)),
                .hidden = static_cast<int>(embedding.size(1)),
                .out_f32 = out.dtype() == DType::kF32},
               rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
