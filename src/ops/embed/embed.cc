#include "ops/embed/embed.h"

#include "ops/check.h"
#include "ops/embed/embed_cuda.h"

namespace rose::ops {

void resolve_tokens(const Stream& stream, const Tensor& sources, const Tensor& last_tokens, const Tensor& tokens) {
  check_tensor(stream, "resolve_tokens: tokens", tokens, {DType::kI32}, {-1});
  check_tensor(stream, "resolve_tokens: sources", sources, {DType::kI32}, {tokens.size(0)});
  check_tensor(stream, "resolve_tokens: last_tokens", last_tokens, {DType::kI32}, {-1});
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::resolve_tokens(stream, sources, last_tokens, tokens);
      return;
    case DeviceKind::kCuda:
      cuda::resolve_tokens(stream, sources, last_tokens, tokens);
      return;
  }
}

void embed(const Stream& stream, const Tensor& tokens, const Tensor& embedding, const Tensor& out) {
  check_tensor(stream, "embed: tokens", tokens, {DType::kI32}, {-1});
  check_tensor(stream, "embed: embedding", embedding, {DType::kBf16}, {-1, -1});
  check_activations(stream, "embed: out", out, tokens.size(0), embedding.size(1));
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::embed(stream, tokens, embedding, out);
      return;
    case DeviceKind::kCuda:
      cuda::embed(stream, tokens, embedding, out);
      return;
  }
}

}  // namespace rose::ops
