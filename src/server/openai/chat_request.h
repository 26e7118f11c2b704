// The parse half of POST /v1/chat/completions: JSON to what the chat format and the engine need. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "engine/request.h"
#include "json/json.h"

namespace rose::openai {

struct ApiLimits {
  int vocabulary = 0;  // ids in requests are below this
  int n_max = 8;
  std::size_t messages_max = 2048;
  std::size_t parts_max = 64;
  std::size_t tools_max = 128;
  std::size_t stop_strings_max = 4;
  std::size_t stop_string_bytes_max = 256;
  std::size_t logit_bias_max = 300;
  std::size_t prompts_max = 32;  // of one legacy completion call
};

// What chat and legacy completions share.
struct SamplingRequest {
  std::string model;
  DecodingOptions decoding;  // max_tokens 0: not given; stop_tokens: the caller's extra ones
  int n = 1;
  std::vector<std::string> stop;
  bool include_stop = false;  // vLLM: leave the matched stop string in the text
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // vLLM: usage in every chunk
  bool return_token_ids = false;  // vLLM
  int priority = 0;
  std::string cache_salt;
};

struct ChatRequest {
  SamplingRequest sampling;
  Conversation conversation;  // without its date
  bool include_reasoning = true;
};

// `body` must be an object. Errors: 400 with `param`.
Result<ChatRequest> parse_chat_request(const json::Value& body, const ApiLimits& limits);

}  // namespace rose::openai
