#include "engine/request_check.h"

#include <fmt/format.h>

#include <cmath>

namespace rose {
namespace {

RequestError refuse(std::string param, std::string message) {
  return {.status = 400, .message = std::move(message), .param = std::move(param)};
}

// Written so that a NaN is outside.
bool within(float value, float least, float most) { return value >= least && value <= most; }

bool known(std::int32_t token, const EngineLimits& limits) { return token >= 0 && token < limits.vocabulary; }

Result<Ok> check_numbers(const DecodingOptions& d) {
  if (!within(d.temperature, 0, 1e6f)) return refuse("temperature", "temperature must be 0 or more");
  if (!within(d.top_p, 0, 1) || d.top_p == 0) return refuse("top_p", "top_p must be above 0 and at most 1");
  if (!within(d.min_p, 0, 1)) return refuse("min_p", "min_p must be from 0 to 1");
  if (d.top_k < 0) return refuse("top_k", "top_k must be 0 or more");
  if (!within(d.presence_penalty, -2, 2)) return refuse("presence_penalty", "presence_penalty must be from -2 to 2");
  if (!within(d.frequency_penalty, -2, 2)) {
    return refuse("frequency_penalty", "frequency_penalty must be from -2 to 2");
  }
  if (!within(d.repetition_penalty, 1e-3f, 1e3f)) {
    return refuse("repetition_penalty", "repetition_penalty must be from 0.001 to 1000");
  }
  if (d.top_logprobs < -1 || d.top_logprobs > 20) return refuse("top_logprobs", "top_logprobs must be from 0 to 20");
  return Ok{};
}

Result<Ok> check_tokens(const Request& request, const EngineLimits& limits) {
  for (const std::int32_t token : request.prompt) {
    if (!known(token, limits)) return refuse("prompt", fmt::format("the prompt has an unknown token id {}", token));
  }
  const DecodingOptions& d = request.decoding;
  for (const std::int32_t token : d.stop_tokens) {
    if (!known(token, limits)) return refuse("stop_token_ids", fmt::format("unknown stop token id {}", token));
  }
  for (const auto& [token, bias] : d.logit_bias) {
    if (!known(token, limits)) return refuse("logit_bias", fmt::format("logit_bias has an unknown token id {}", token));
    if (!within(bias, -100, 100)) return refuse("logit_bias", "logit_bias values must be from -100 to 100");
  }
  // Masked before min_tokens: something must be left to choose.
  if (d.min_tokens > 0 && static_cast<int>(d.stop_tokens.size()) >= limits.vocabulary) {
    return refuse("stop_token_ids", "min_tokens leaves no token to choose");
  }
  return Ok{};
}

}  // namespace

Result<Ok> check_request(const Request& request, const EngineLimits& limits) {
  CHECK(request.sink != nullptr, "request {} has no sink", request.id);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) return refuse("prompt", "the prompt is empty");
  if (prompt >= limits.context_max) {
    RequestError error = refuse(
        "prompt",
        fmt::format("the prompt has {} tokens; the context is {} tokens, answer included", prompt, limits.context_max));
    error.code = "context_length_exceeded";
    return error;
  }
  const DecodingOptions& d = request.decoding;
  if (d.max_tokens < 1) return refuse("max_tokens", "max_tokens must be 1 or more");
  if (d.min_tokens < 0 || d.min_tokens > d.max_tokens) {
    return refuse("min_tokens", "min_tokens must be from 0 to max_tokens");
  }
  if (request.n < 1 || request.n > kChoicesMax) return refuse("n", fmt::format("n must be from 1 to {}", kChoicesMax));
  if (request.cache_salt.size() > 128) return refuse("cache_salt", "cache_salt must have at most 128 characters");
  if (!request.masks.empty() && static_cast<int>(request.masks.size()) != request.n) {
    return refuse("", fmt::format("{} masks for {} choices", request.masks.size(), request.n));
  }
  if (const auto numbers = check_numbers(d); !numbers) return numbers.error();
  return check_tokens(request, limits);
}

}  // namespace rose
