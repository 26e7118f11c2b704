// POST /v1/completions: raw text or token ids in, raw text out, no chat format. What benchmark tools drive.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "server/http.h"
#include "server/openai/service.h"

namespace rose::openai {

struct CompletionRequest {
  SamplingRequest sampling;
  std::variant<std::string, std::vector<TokenId>> prompt;
  bool echo = false;
  bool skip_special_tokens = true;
};

// Errors: 400 with `param`. Several prompts in one request, suffix and best_of > n are refused by name.
Result<CompletionRequest> parse_completion_request(const json::Value& body, const ApiLimits& limits);

void completions(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);

}  // namespace rose::openai
