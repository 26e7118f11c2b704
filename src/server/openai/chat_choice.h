// One choice of a chat answer: generated ids become the pieces that a client sees, stop strings and logprobs included.
// The streamed and the whole answer are made of the same pieces, so they cannot disagree.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "engine/request.h"
#include "server/openai/chat_request.h"
#include "server/openai/stop_matcher.h"

namespace rose::openai {

struct LogprobEntry {
  std::int32_t token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

enum class PieceKind { kReasoning, kContent, kCallBegin, kCallArguments };

struct Piece {
  PieceKind kind = PieceKind::kContent;
  std::string text = {};
  int call = -1;                            // kCallBegin, kCallArguments: 0, 1, ...
  std::string name = {};                    // kCallBegin
  std::vector<LogprobEntry> logprobs = {};  // kContent, if asked for
};

class ChatChoice {
 public:
  ChatChoice(std::unique_ptr<ChatParser> parser, const ChatRequest& request, const Tokenizer& tokenizer);

  // Appends what the event adds; neighbours of one kind are merged. Nothing happens once done().
  void feed(const TokenEvent& event, std::vector<Piece>& out);

  bool done() const { return !finish_.empty(); }
  std::string_view finish_reason() const { return finish_; }  // "stop", "length", "tool_calls"
  // The stop string, or the caller's own stop id, that ended it (vLLM's stop_reason).
  const json::Value& stop_reason() const { return stop_reason_; }
  int tokens() const { return tokens_; }
  int reasoning_tokens() const { return parser_->reasoning_tokens(); }

 private:
  struct Held {  // a token that may or may not turn out to be visible text
    std::int64_t position;
    LogprobEntry entry;
  };
  struct Placed {       // visible, its text not out yet
    std::size_t begin;  // in the content, bytes
    LogprobEntry entry;
  };

  void take_events(std::vector<Piece>& out);
  void show(std::string text, std::vector<Piece>& out);
  void place_logprobs(std::size_t content_before);
  void release_logprobs(bool all, std::vector<LogprobEntry>& out);
  void end(FinishReason reason, std::vector<Piece>& out);

  std::unique_ptr<ChatParser> parser_;
  const Tokenizer& tokenizer_;
  StopMatcher stops_;
  std::vector<std::int32_t> stop_tokens_;
  bool include_reasoning_;
  bool wants_logprobs_;

  std::vector<ChatEvent> events_;
  int tokens_ = 0;
  std::int32_t last_token_ = -1;
  std::size_t content_seen_ = 0;    // bytes of content out of the parser
  std::size_t content_shown_ = 0;   // bytes of content out of here
  std::size_t positions_seen_ = 0;  // of the parser's content_positions
  std::deque<Held> held_;
  std::deque<Placed> placed_;
  std::string finish_;
  json::Value stop_reason_;
};

}  // namespace rose::openai
