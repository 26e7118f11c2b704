// The writer half of POST /v1/chat/completions: pieces to one response object or to chunks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json/json.h"
#include "server/openai/chat_choice.h"
#include "tokenizer/tokenizer.h"

namespace rose::openai {

enum class ReasoningField { kReasoning, kReasoningContent, kBoth };

struct Usage {
  int prompt_tokens = 0;
  int completion_tokens = 0;
  int cached_tokens = 0;
  int reasoning_tokens = 0;
};

json::Object usage_object(const Usage& usage);
double logprob_value(float logprob);  // JSON has no infinity: -9999 stands for it
// One entry of logprobs.content: in the text bad UTF-8 is U+FFFD, `bytes` are exact.
json::Object logprob_object(const LogprobEntry& entry, const Tokenizer& tokenizer);

struct ChatWriterOptions {
  std::string id;  // "chatcmpl-..."; call ids are made from it
  std::string model;
  std::string fingerprint;
  std::int64_t created = 0;  // unix seconds
  ReasoningField reasoning_field = ReasoningField::kReasoning;
  bool logprobs = false;
  bool include_usage = false;  // all chunks carry "usage"
  std::string call_id_prefix;  // "call_..."; choice and index are appended
};

// What a whole answer is made of; grows by pieces.
struct ChatAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<LogprobEntry> logprobs;
  std::string finish_reason;
  json::Value stop_reason;

  void add(std::vector<Piece> pieces);
};

class ChatWriter {
 public:
  ChatWriter(ChatWriterOptions options, const Tokenizer& tokenizer)
      : options_(std::move(options)), tokenizer_(tokenizer) {}

  // Chunks, each a whole event of the stream. `usage`: null, or the usage so far (vLLM's continuous_usage_stats).
  std::string role_chunk(int choice, const Usage* usage) const;
  std::string chunk(int choice, const Piece& piece, const Usage* usage) const;
  std::string finish_chunk(int choice, std::string_view finish_reason, const json::Value& stop_reason,
                           const Usage* usage) const;
  std::string usage_chunk(const Usage& usage) const;

  std::string whole(const std::vector<ChatAnswer>& answers, const Usage& usage) const;

 private:
  json::Object envelope(std::string_view object) const;
  std::string choice_chunk(int choice, json::Object delta, json::Value logprobs, json::Value finish_reason,
                           json::Value stop_reason, const Usage* usage) const;
  void put_reasoning(json::Object& message, std::string_view text) const;
  json::Value logprobs_value(const std::vector<LogprobEntry>& entries) const;
  std::string call_id(int choice, int call) const;

  ChatWriterOptions options_;
  const Tokenizer& tokenizer_;
};

// "data: ...\n\n"
std::string event_of(const json::Object& object);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace rose::openai
