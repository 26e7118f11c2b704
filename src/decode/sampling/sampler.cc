#include "decode/sampling/sampler.h"

#include "ops/embed/embed.h"

namespace rose {

Sampler::Sampler(const SamplerLimits& limits, Arena& arena) {
  const int m = limits.logit_rows_max;
  outputs_.tokens = arena.tensor("sample.tokens", DType::kI32, {m});
  outputs_.logprobs = arena.tensor("sample.logprobs", DType::kF32, {m});
  outputs_.top_tokens = arena.tensor("sample.top_tokens", DType::kI32, {m, ops::kTopLogprobsMax});
  outputs_.top_logprobs = arena.tensor("sample.top_logprobs", DType::kF32, {m, ops::kTopLogprobsMax});
  outputs_.last_tokens = arena.tensor("sample.last_tokens", DType::kI32, {limits.slots});
}

std::size_t Sampler::bytes(const SamplerLimits& limits) {
  const auto m = static_cast<std::size_t>(limits.logit_rows_max);
  return 2 * Arena::aligned(4 * m) + 2 * Arena::aligned(4 * m * ops::kTopLogprobsMax) +
         Arena::aligned(4 * static_cast<std::size_t>(limits.slots));
}

void Sampler::resolve(const Stream& stream, const Tensor& sources, const Tensor& tokens) const {
  ops::resolve_tokens(stream, sources, outputs_.last_tokens, tokens);
}

void Sampler::sample(const Stream& stream, const ops::SampleInputs& in) const {
  const std::int64_t m = in.logits.size(0);
  ops::SampleOutputs out = outputs_;
  out.tokens = out.tokens.rows(0, m);
  out.logprobs = out.logprobs.rows(0, m);
  out.top_tokens = out.top_tokens.rows(0, m);
  out.top_logprobs = out.top_logprobs.rows(0, m);
  ops::sample(stream, in, out);
}

}  // namespace rose
