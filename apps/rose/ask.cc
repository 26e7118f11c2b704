#include "ask.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace rose {

void EventQueue::deliver(std::span<const TokenEvent> events) {
  {
    std::lock_guard lock(mutex_);
    events_.insert(events_.end(), events.begin(), events.end());
  }
  arrived_.notify_one();
}

void EventQueue::started(int cached_tokens, const RequestTimes&) { cached_tokens_ = cached_tokens; }

std::vector<TokenEvent> EventQueue::take(double timeout_s) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return !events_.empty(); });
  return std::exchange(events_, {});
}

namespace {

void add_event(const ChatEvent& event, Turn& turn) {
  switch (event.kind) {
    case ChatEventKind::kReasoning:
      turn.reasoning += event.text;
      break;
    case ChatEventKind::kContent:
      turn.content += event.text;
      break;
    case ChatEventKind::kToolCallBegin:
      turn.tool_calls.push_back({fmt::format("call_{}", turn.tool_calls.size()), event.name, ""});
      break;
    case ChatEventKind::kToolCallArguments:
      turn.tool_calls.back().arguments += event.text;
      break;
    case ChatEventKind::kToolCallEnd:
      break;
  }
}

std::atomic<RequestId> next_request{1};

}  // namespace

Result<Turn> ask(TokenEngine& engine, const ChatFormat& format, const Conversation& conversation,
                 DecodingOptions decoding, const std::atomic<bool>& stop,
                 const std::function<void(const ChatEvent&)>& on_event) {
  Result<std::vector<TokenId>> prompt = format.render(conversation);
  if (!prompt) return prompt.error();
  const int room = engine.limits().context_max - static_cast<int>(prompt->size());
  if (room < 1) {
    return RequestError{400, fmt::format("the conversation has {} tokens, the context holds {}: start a new one",
                                         prompt->size(), engine.limits().context_max)};
  }
  decoding.max_tokens = decoding.max_tokens == 0 ? room : std::min(decoding.max_tokens, room);
  decoding.stop_tokens = format.stop_tokens();

  const auto sink = std::make_shared<EventQueue>();
  Request request{.id = next_request++, .prompt = *prompt, .decoding = decoding, .sink = sink};
  const RequestId id = request.id;
  Turn turn;
  turn.prompt_tokens = static_cast<int>(prompt->size());
  const std::unique_ptr<ChatParser> parser = format.parser(conversation);
  const Time begin = Clock::now();
  if (const Result<Ok> accepted = engine.submit(std::move(request)); !accepted) return accepted.error();

  std::vector<ChatEvent> parsed;
  const auto show = [&] {
    for (const ChatEvent& event : parsed) {
      add_event(event, turn);
      on_event(event);
    }
    parsed.clear();
  };
  for (bool done = false, cancelled = false; !done;) {
    if ((stop || parser->wants_stop()) && !cancelled) {
      engine.cancel(id);
      cancelled = true;
    }
    for (const TokenEvent& event : sink->take(0.05)) {
      if (event.token >= 0) {
        if (turn.tokens++ == 0) turn.first_token_s = seconds_between(begin, Clock::now());
        parser->feed(event.token, parsed);
        show();
      }
      if (event.finish == FinishReason::kFailed) return RequestError{500, event.error};
      if (event.finish) {
        turn.finish = *event.finish;
        done = true;
      }
    }
  }
  parser->finish(parsed);
  show();
  turn.total_s = seconds_between(begin, Clock::now());
  return turn;
}

}  // namespace rose
