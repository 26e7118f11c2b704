#include "server/openai/chat_choice.h"

#include <algorithm>

namespace rose::openai {
namespace {

void append(Piece piece, std::vector<Piece>& out) {
  const bool joins = !out.empty() && piece.kind != PieceKind::kCallBegin && out.back().kind == piece.kind &&
                     out.back().call == piece.call;
  if (!joins) return out.push_back(std::move(piece));
  out.back().text += piece.text;
  std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(out.back().logprobs));
}

}  // namespace

ChatChoice::ChatChoice(std::unique_ptr<ChatParser> parser, const ChatRequest& request, const Tokenizer& tokenizer)
    : parser_(std::move(parser)),
      tokenizer_(tokenizer),
      stops_(request.sampling.stop, request.sampling.include_stop),
      stop_tokens_(request.sampling.decoding.stop_tokens),
      include_reasoning_(request.include_reasoning),
      wants_logprobs_(request.sampling.decoding.top_logprobs >= 0) {}

void ChatChoice::feed(const TokenEvent& event, std::vector<Piece>& out) {
  if (done()) return;
  if (event.token >= 0) {
    if (wants_logprobs_) held_.push_back({tokens_, {event.token, event.logprob, event.top_logprobs}});
    ++tokens_;
    last_token_ = event.token;
    const std::size_t content_before = content_seen_;
    parser_->feed(event.token, events_);
    for (const ChatEvent& e : events_) content_seen_ += e.kind == ChatEventKind::kContent ? e.text.size() : 0;
    place_logprobs(content_before);
    take_events(out);
    if (stops_.matched()) return end(FinishReason::kStop, out);
    if (parser_->wants_stop() && !event.finish) return end(FinishReason::kStop, out);
  }
  if (event.finish) end(*event.finish, out);
}

void ChatChoice::take_events(std::vector<Piece>& out) {
  for (ChatEvent& event : events_) {
    switch (event.kind) {
      case ChatEventKind::kReasoning:
        if (include_reasoning_) append({.kind = PieceKind::kReasoning, .text = std::move(event.text)}, out);
        break;
      case ChatEventKind::kContent:
        show(std::move(event.text), out);
        break;
      case ChatEventKind::kToolCallBegin:
        append({.kind = PieceKind::kCallBegin, .call = event.call, .name = std::move(event.name)}, out);
        break;
      case ChatEventKind::kToolCallArguments:
        append({.kind = PieceKind::kCallArguments, .text = std::move(event.text), .call = event.call}, out);
        break;
      case ChatEventKind::kToolCallEnd:
        break;
    }
    if (stops_.matched()) break;
  }
  events_.clear();
}

void ChatChoice::show(std::string text, std::vector<Piece>& out) {
  Piece piece{.kind = PieceKind::kContent};
  stops_.feed(text, piece.text);
  content_shown_ += piece.text.size();
  release_logprobs(false, piece.logprobs);
  if (!piece.text.empty() || !piece.logprobs.empty()) append(std::move(piece), out);
}

// The parser has named more positions as visible text: their tokens' text begins where the last one's ended.
void ChatChoice::place_logprobs(std::size_t content_before) {
  if (!wants_logprobs_) return;
  const std::vector<std::int64_t>& positions = parser_->content_positions();
  std::size_t begin = content_before;
  for (; positions_seen_ < positions.size(); ++positions_seen_) {
    while (!held_.empty() && held_.front().position < positions[positions_seen_]) held_.pop_front();
    if (held_.empty() || held_.front().position != positions[positions_seen_]) continue;
    const std::size_t bytes = tokenizer_.decode(held_.front().entry.token).size();
    placed_.push_back({std::min(begin, content_seen_), std::move(held_.front().entry)});
    begin += bytes;
    held_.pop_front();
  }
}

void ChatChoice::release_logprobs(bool all, std::vector<LogprobEntry>& out) {
  while (!placed_.empty() && (all || placed_.front().begin < content_shown_)) {
    out.push_back(std::move(placed_.front().entry));
    placed_.pop_front();
  }
}

void ChatChoice::end(FinishReason reason, std::vector<Piece>& out) {
  if (!stops_.matched()) {
    const std::size_t content_before = content_seen_;
    parser_->finish(events_);
    for (const ChatEvent& e : events_) content_seen_ += e.kind == ChatEventKind::kContent ? e.text.size() : 0;
    place_logprobs(content_before);
    take_events(out);
  }
  if (!stops_.matched()) {
    Piece rest{.kind = PieceKind::kContent};
    stops_.flush(rest.text);
    content_shown_ += rest.text.size();
    release_logprobs(true, rest.logprobs);
    if (!rest.text.empty() || !rest.logprobs.empty()) append(std::move(rest), out);
  }
  if (stops_.matched()) {
    finish_ = "stop";
    stop_reason_ = json::Value(*stops_.matched());
    return;
  }
  if (reason == FinishReason::kStop) {
    finish_ = parser_->called_tool() ? "tool_calls" : "stop";
    const bool callers = std::find(stop_tokens_.begin(), stop_tokens_.end(), last_token_) != stop_tokens_.end();
    if (callers) stop_reason_ = last_token_;
  } else {
    finish_ = "length";
  }
}

}  // namespace rose::openai
