// Generated ids to what a front end shows. Total: whatever the model writes, something sensible comes out (spec:
// harmony.md 3.2 to 3.7; the deviations D1 to D28 are tests in parser_test.cc). Each id costs the bytes it adds;
// nothing is decoded twice.
//
// Where the spec leaves room:
//  - Text whose channel is unknown is held back. It becomes reasoning as soon as something else of the turn shows text
//  (then
//    the order of reasoning is kept), else the answer when the generation ends.
//  - A body addressed to a function on the final channel is held back until its first character: '{' makes it a call.
//  - A call of something unknown gives nothing with tools; without tools its body is content, or reasoning if it is the
//    model's python or browser on the analysis channel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "chat/harmony/header.h"
#include "chat/harmony/json_balance.h"
#include "chat/harmony/special_tokens.h"
#include "chat/harmony/tool_names.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace rose::harmony {

// Where the rendered prompt leaves off.
struct ParserStart {
  enum class At { kHeader, kReasoning, kContent, kCall };
  At at = At::kHeader;
  std::vector<HeaderSegment> header;  // kHeader: what of the header is in the prompt; role implied
  std::string call_name;              // kCall: reported with the first id
};

class Parser final : public ChatParser {
 public:
  Parser(std::shared_ptr<const Tokenizer> tokenizer, const SpecialTokens& tokens, ToolNames tools,
         const ParserStart& start);

  void feed(TokenId id, std::vector<ChatEvent>& events) override;
  void finish(std::vector<ChatEvent>& events) override;

  bool last_was_content() const override { return last_was_content_; }
  const std::vector<std::int64_t>& content_positions() const override { return content_positions_; }
  int reasoning_tokens() const override;
  bool called_tool() const override { return called_tool_; }
  bool wants_stop() const override { return wants_stop_; }

 private:
  enum class State { kHeader, kContent, kBetween, kDone };
  enum class Kind { kText, kStart, kMessage, kChannel, kConstrain, kEnd, kReturn, kCall, kTextEnd, kReserved };
  // Where the text of the open message goes.
  enum class Sink { kReasoning, kVisible, kCall, kProseOrCall, kUndecided, kDropped };
  enum class Ending { kEnd, kReturn, kCall, kNext, kStream };

  // Text of a message that is not shown yet.
  struct Held {
    std::string text;
    std::vector<std::int64_t> positions;  // of the ids that carried it
    int tokens = 0;                       // of the whole message
  };
  // Deltas of one kind; a line break separates its messages.
  struct Flow {
    bool any = false;
    bool break_due = false;
  };
  using Events = std::vector<ChatEvent>;

  Kind kind_of(TokenId id) const;
  void in_header(Kind kind, TokenId id, Events& events);
  void in_content(Kind kind, TokenId id, Events& events);
  void in_between(Kind kind, TokenId id, Events& events);

  void begin_header(bool role_implied);
  void header_text(std::string_view bytes, Events& events);
  void close_orphan(Ending ending, Events& events);
  void open_orphan(Orphan orphan, Events& events);
  void open_message(const Header& header, bool orphan, Events& events);
  Sink sink_of(const Header& header, bool orphan);
  void close_message(Ending ending, Events& events);
  void close_call(Ending ending, Events& events);
  void end_generation(Events& events);
  void begin_forced_call(Events& events);

  void take_text(std::string_view text, Events& events);
  void show(ChatEventKind kind, std::string text, Events& events);
  void begin_call(Events& events);
  void arguments(std::string text, Events& events);
  void settle(bool as_answer, Events& events);
  void show_held(Held held, Events& events);

  std::shared_ptr<const Tokenizer> tokenizer_;
  SpecialTokens tokens_;
  ToolNames tools_;

  State state_ = State::kHeader;
  std::int64_t position_ = -1;  // of the id being fed
  bool forced_call_due_ = false;

  std::vector<HeaderSegment> segments_;
  bool role_implied_ = true;
  int header_tokens_ = 0;
  std::size_t header_bytes_ = 0;
  std::vector<std::int64_t> header_positions_;  // of its text

  Sink sink_ = Sink::kDropped;
  std::string call_name_;
  JsonBalance body_;
  Utf8Stream utf8_;
  Held held_;               // of the open message: kProseOrCall, kUndecided
  int message_tokens_ = 0;  // of the open message, header included

  std::vector<Held> undecided_;
  Flow reasoning_;
  Flow content_;
  int calls_ = 0;
  int reasoning_tokens_ = 0;
  bool called_tool_ = false;
  bool wants_stop_ = false;
  bool last_was_content_ = false;
  std::vector<std::int64_t> content_positions_;
};

}  // namespace rose::harmony
