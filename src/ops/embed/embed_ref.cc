#include "base/check.h"
#include "ops/embed/embed.h"

namespace rose::ops::ref {

void resolve_tokens(const Stream&, const Tensor& sources, const Tensor& last_tokens, const Tensor& tokens) {
  for (std::int64_t r = 0; r < tokens.size(0); ++r) {
    const std::int32_t source = sources.as<std::int32_t>()[r];
    if (source < 0) continue;
    CHECK(source < last_tokens.size(0), "row {} takes slot {} of {}", r, source, last_tokens.size(0));
    tokens.as<std::int32_t>()[r] = last_tokens.as<std::int32_t>()[source];
  }
}

void embed(const Stream& stream, const Tensor& tokens, const Tensor& embedding, const Tensor& out) {
  const std::int64_t hidden = embedding.size(1);
  stream.parallel_for(static_cast<std::size_t>(tokens.size(0)), 16, [&](std::size_t begin, std::size_t end) {
    for (auto r = static_cast<std::int64_t>(begin); r < static_cast<std::int64_t>(end); ++r) {
      const std::int32_t token = tokens.as<std::int32_t>()[r];
      CHECK(token >= 0 && token < embedding.size(0), "row {} has token {} of {}", r, token, embedding.size(0));
      const Bf16* from = embedding.row<Bf16>(token);
      if (out.dtype() == DType::kF32) {
        for (std::int64_t h = 0; h < hidden; ++h) out.row<float>(r)[h] = to_float(from[h]);
      } else {
        for (std::int64_t h = 0; h < hidden; ++h) out.row<Bf16>(r)[h] = from[h];
      }
    }
  });
}

}  // namespace rose::ops::ref
