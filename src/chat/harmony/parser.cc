#include "chat/harmony/parser.h"

#include <utility>

namespace rose::harmony {
namespace {

// A header without <|message|> beyond this is text.
constexpr int kHeaderTokensMax = 64;
constexpr std::size_t kHeaderBytesMax = 512;

}  // namespace

Parser::Parser(std::shared_ptr<const Tokenizer> tokenizer, const SpecialTokens& tokens, ToolNames tools,
               const ParserStart& start)
    : tokenizer_(std::move(tokenizer)), tokens_(tokens), tools_(std::move(tools)) {
  begin_header(/*role_implied=*/true);
  switch (start.at) {
    case ParserStart::At::kHeader:
      for (const HeaderSegment& segment : start.header) {
        segments_.push_back(segment);
        header_bytes_ += segment.text.size();
      }
      break;
    case ParserStart::At::kReasoning:
    case ParserStart::At::kContent:
      state_ = State::kContent;
      sink_ = start.at == ParserStart::At::kReasoning ? Sink::kReasoning : Sink::kVisible;
      break;
    case ParserStart::At::kCall:
      state_ = State::kContent;
      sink_ = Sink::kCall;
      call_name_ = start.call_name;
      forced_call_due_ = true;
      break;
  }
}

Parser::Kind Parser::kind_of(TokenId id) const {
  if (id == tokens_.start) return Kind::kStart;
  if (id == tokens_.message) return Kind::kMessage;
  if (id == tokens_.channel) return Kind::kChannel;
  if (id == tokens_.constrain) return Kind::kConstrain;
  if (id == tokens_.end) return Kind::kEnd;
  if (id == tokens_.turn_end) return Kind::kReturn;
  if (id == tokens_.call) return Kind::kCall;
  if (id >= 0 && id == tokens_.text_end) return Kind::kTextEnd;
  return tokenizer_->is_special(id) ? Kind::kReserved : Kind::kText;
}

void Parser::feed(TokenId id, Events& events) {
  ++position_;
  last_was_content_ = false;
  begin_forced_call(events);
  if (state_ == State::kDone) return;
  ++message_tokens_;
  const Kind kind = kind_of(id);
  switch (state_) {
    case State::kHeader:
      in_header(kind, id, events);
      break;
    case State::kContent:
      in_content(kind, id, events);
      break;
    case State::kBetween:
      in_between(kind, id, events);
      break;
    case State::kDone:
      break;
  }
}

void Parser::in_header(Kind kind, TokenId id, Events& events) {
  switch (kind) {
    case Kind::kMessage: {
      const Header header = read_header(segments_, role_implied_);
      held_ = {};
      open_message(header, /*orphan=*/false, events);
      break;
    }
    case Kind::kChannel:
    case Kind::kConstrain:
      segments_.push_back({kind == Kind::kChannel ? Mark::kChannel : Mark::kConstrain, ""});
      header_text("", events);
      break;
    case Kind::kStart:
      --message_tokens_;  // the next message's
      if (!is_blank_header(segments_)) close_orphan(Ending::kNext, events);
      if (state_ == State::kDone) return;
      begin_header(/*role_implied=*/false);
      message_tokens_ = 1;
      break;
    case Kind::kEnd:
    case Kind::kReturn:
    case Kind::kCall: {
      const Ending ending = kind == Kind::kEnd ? Ending::kEnd : kind == Kind::kReturn ? Ending::kReturn : Ending::kCall;
      close_orphan(ending, events);
      if (ending != Ending::kEnd) end_generation(events);
      break;
    }
    case Kind::kTextEnd:
      finish(events);
      break;
    case Kind::kReserved:
      break;
    case Kind::kText: {
      const std::string_view bytes = tokenizer_->decode(id);
      if (!bytes.empty()) header_positions_.push_back(position_);
      header_text(bytes, events);
      break;
    }
  }
}

void Parser::in_content(Kind kind, TokenId id, Events& events) {
  switch (kind) {
    case Kind::kEnd:
      close_message(Ending::kEnd, events);
      break;
    case Kind::kReturn:
    case Kind::kTextEnd:
      close_message(Ending::kReturn, events);
      end_generation(events);
      break;
    case Kind::kCall:
      close_message(Ending::kCall, events);
      end_generation(events);
      break;
    case Kind::kStart:
    case Kind::kChannel:
      --message_tokens_;
      close_message(Ending::kNext, events);
      begin_header(/*role_implied=*/kind == Kind::kChannel);
      if (kind == Kind::kChannel) segments_.push_back({Mark::kChannel, ""});
      message_tokens_ = 1;
      break;
    case Kind::kMessage:
    case Kind::kConstrain:
    case Kind::kReserved:
      break;
    case Kind::kText: {
      const std::string_view bytes = tokenizer_->decode(id);
      if (bytes.empty()) return;
      if (sink_ == Sink::kVisible) {
        last_was_content_ = true;
        content_positions_.push_back(position_);
      } else if (sink_ == Sink::kProseOrCall || sink_ == Sink::kUndecided) {
        held_.positions.push_back(position_);
      }
      std::string text;
      utf8_.feed(bytes, text);
      take_text(text, events);
      break;
    }
  }
}

void Parser::in_between(Kind kind, TokenId id, Events& events) {
  message_tokens_ = 1;
  switch (kind) {
    case Kind::kStart:
      begin_header(/*role_implied=*/false);
      break;
    case Kind::kChannel:
      begin_header(/*role_implied=*/true);
      segments_.push_back({Mark::kChannel, ""});
      break;
    case Kind::kMessage:
      held_ = {};
      open_message(Header{}, /*orphan=*/false, events);
      break;
    case Kind::kReturn:
    case Kind::kCall:
    case Kind::kTextEnd:
      end_generation(events);
      break;
    case Kind::kEnd:
    case Kind::kConstrain:
    case Kind::kReserved:
      break;
    case Kind::kText: {
      const std::string_view bytes = tokenizer_->decode(id);
      if (is_blank(bytes)) return;
      begin_header(/*role_implied=*/true);
      header_positions_.push_back(position_);
      header_text(bytes, events);
      break;
    }
  }
}

void Parser::begin_header(bool role_implied) {
  state_ = State::kHeader;
  segments_.assign(1, HeaderSegment{});
  role_implied_ = role_implied;
  header_tokens_ = 0;
  header_bytes_ = 0;
  header_positions_.clear();
}

void Parser::header_text(std::string_view bytes, Events& events) {
  segments_.back().text += bytes;
  header_bytes_ += bytes.size();
  if (++header_tokens_ > kHeaderTokensMax || header_bytes_ > kHeaderBytesMax) {
    open_orphan(read_orphan(segments_, role_implied_), events);
  }
}

// The header ends and no <|message|> came.
void Parser::close_orphan(Ending ending, Events& events) {
  Orphan orphan = read_orphan(segments_, role_implied_);
  state_ = State::kBetween;
  const bool bodyless_call = ending == Ending::kCall && !orphan.header.recipient.empty() &&
                             tools_.resolve(orphan.header.recipient).kind == ToolNames::Kind::kFunction;
  if (orphan.header.role == Role::kAssistant && is_blank(orphan.text) && !bodyless_call) return;
  open_orphan(std::move(orphan), events);
  if (state_ == State::kContent) close_message(ending, events);
}

void Parser::open_orphan(Orphan orphan, Events& events) {
  held_ = {};
  // Header words are no part of the text, so that with a mark the ids do not stand for it exactly.
  if (!has_marks(segments_)) held_.positions = std::move(header_positions_);
  open_message(orphan.header, /*orphan=*/true, events);
  if (state_ != State::kContent) return;
  if (sink_ == Sink::kVisible) {
    content_positions_.insert(content_positions_.end(), held_.positions.begin(), held_.positions.end());
  }
  std::string text;
  utf8_.feed(orphan.text, text);
  take_text(text, events);
}

Parser::Sink Parser::sink_of(const Header& header, bool orphan) {
  if (header.recipient.empty()) {
    switch (header.channel) {
      case Channel::kAnalysis:
        return Sink::kReasoning;
      case Channel::kCommentary:
      case Channel::kFinal:
        return Sink::kVisible;
      case Channel::kNone:
        return Sink::kUndecided;
    }
  }
  ToolNames::Target target = tools_.resolve(header.recipient);
  if (target.kind == ToolNames::Kind::kFunction) {
    call_name_ = std::move(target.name);
    return header.channel == Channel::kFinal || orphan ? Sink::kProseOrCall : Sink::kCall;
  }
  if (!tools_.none_offered()) return Sink::kDropped;
  const bool own_tool = target.kind == ToolNames::Kind::kBuiltin && header.channel == Channel::kAnalysis;
  return own_tool ? Sink::kReasoning : Sink::kVisible;
}

void Parser::open_message(const Header& header, bool orphan, Events& events) {
  if (header.role != Role::kAssistant) {  // the model speaks for somebody else: its turn is over
    wants_stop_ = true;
    end_generation(events);
    return;
  }
  state_ = State::kContent;
  body_ = {};
  utf8_ = {};
  sink_ = sink_of(header, orphan);
  if (sink_ == Sink::kCall) begin_call(events);
}

void Parser::close_message(Ending ending, Events& events) {
  state_ = State::kBetween;
  std::string rest;
  utf8_.flush(rest);
  take_text(rest, events);
  switch (sink_) {
    case Sink::kReasoning:
      reasoning_tokens_ += message_tokens_;
      break;
    case Sink::kCall:
      close_call(ending, events);
      break;
    case Sink::kProseOrCall:
      if (ending == Ending::kReturn || ending == Ending::kStream) {
        settle(/*as_answer=*/false, events);
        show_held(std::move(held_), events);
      } else {
        begin_call(events);
        arguments(std::move(held_.text), events);
        close_call(ending, events);
      }
      break;
    case Sink::kUndecided:
      held_.tokens = message_tokens_;
      if (!is_blank(held_.text)) undecided_.push_back(std::move(held_));
      break;
    case Sink::kVisible:
    case Sink::kDropped:
      break;
  }
  held_ = {};
  message_tokens_ = 0;
  sink_ = Sink::kDropped;
  reasoning_.break_due = reasoning_.any;
  content_.break_due = content_.any;
}

void Parser::close_call(Ending ending, Events& events) {
  // At the end of the stream an unfinished body means that a limit cut the call.
  if (ending == Ending::kStream && !body_.complete()) return;
  if (body_.blank()) arguments("{}", events);
  events.push_back({.kind = ChatEventKind::kToolCallEnd, .text = {}, .call = calls_ - 1, .name = {}});
  called_tool_ = true;
}

void Parser::end_generation(Events& events) {
  settle(/*as_answer=*/true, events);
  state_ = State::kDone;
}

void Parser::finish(Events& events) {
  begin_forced_call(events);
  if (state_ == State::kDone) return;
  if (state_ == State::kContent) {
    close_message(Ending::kStream, events);
  } else if (state_ == State::kHeader && !has_marks(segments_) &&
             !is_header_beginning(segments_.front().text, role_implied_)) {
    close_orphan(Ending::kStream, events);
  }
  if (state_ != State::kDone) end_generation(events);
}

int Parser::reasoning_tokens() const {
  const bool open = state_ == State::kContent && sink_ == Sink::kReasoning;
  return reasoning_tokens_ + (open ? message_tokens_ : 0);
}

void Parser::begin_forced_call(Events& events) {
  if (std::exchange(forced_call_due_, false)) begin_call(events);
}

// Text of the open message, complete UTF-8.
void Parser::take_text(std::string_view text, Events& events) {
  if (text.empty()) return;
  switch (sink_) {
    case Sink::kReasoning:
      show(ChatEventKind::kReasoning, std::string(text), events);
      break;
    case Sink::kVisible:
      show(ChatEventKind::kContent, std::string(text), events);
      break;
    case Sink::kCall:
      arguments(std::string(text), events);
      break;
    case Sink::kUndecided:
      held_.text += text;
      break;
    case Sink::kProseOrCall: {
      const bool decides = is_blank(held_.text) && !is_blank(text);
      held_.text += text;
      if (!decides) break;
      std::string_view body = held_.text;
      while (const std::size_t space = white_space_at(body)) body.remove_prefix(space);
      if (body.front() != '{') break;
      sink_ = Sink::kCall;
      begin_call(events);
      arguments(std::move(held_.text), events);
      break;
    }
    case Sink::kDropped:
      break;
  }
}

void Parser::show(ChatEventKind kind, std::string text, Events& events) {
  if (text.empty()) return;
  settle(/*as_answer=*/false, events);
  Flow& flow = kind == ChatEventKind::kReasoning ? reasoning_ : content_;
  if (std::exchange(flow.break_due, false)) text.insert(text.begin(), '\n');
  flow.any = true;
  events.push_back({.kind = kind, .text = std::move(text), .call = -1, .name = {}});
}

void Parser::begin_call(Events& events) {
  settle(/*as_answer=*/false, events);
  events.push_back({.kind = ChatEventKind::kToolCallBegin, .text = {}, .call = calls_++, .name = call_name_});
}

void Parser::arguments(std::string text, Events& events) {
  if (text.empty()) return;
  body_.feed(text);
  events.push_back(
      {.kind = ChatEventKind::kToolCallArguments, .text = std::move(text), .call = calls_ - 1, .name = {}});
}

// What the held-back texts of unknown channel were, now that it shows.
void Parser::settle(bool as_answer, Events& events) {
  if (undecided_.empty()) return;
  std::vector<Held> texts;
  texts.swap(undecided_);
  // An open message of the same kind has shown nothing yet, or these would be settled: its break comes after them.
  for (Held& held : texts) {
    if (as_answer) {
      show_held(std::move(held), events);
      content_.break_due = true;
    } else {
      reasoning_tokens_ += held.tokens;
      show(ChatEventKind::kReasoning, std::move(held.text), events);
      reasoning_.break_due = true;
    }
  }
}

void Parser::show_held(Held held, Events& events) {
  content_positions_.insert(content_positions_.end(), held.positions.begin(), held.positions.end());
  if (!held.positions.empty()) last_was_content_ = held.positions.back() == position_;
  show(ChatEventKind::kContent, std::move(held.text), events);
}

}  // namespace rose::harmony
