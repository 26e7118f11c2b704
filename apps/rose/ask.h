// Asking an engine in this process, and waiting for what comes back: for chat, generate and bench.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "engine/request.h"
#include "engine/router.h"

namespace rose {

// A sink that keeps events until somebody waits for them.
class EventQueue final : public RequestSink {
 public:
  void deliver(std::span<const TokenEvent> events) override;
  void started(int cached_tokens, const RequestTimes& times) override;

  // The events since the last call; waits for at least one, or until `timeout_s` has passed (then empty).
  std::vector<TokenEvent> take(double timeout_s);
  int cached_tokens() const { return cached_tokens_; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<TokenEvent> events_;
  std::atomic<int> cached_tokens_{0};
};

// One answer of the assistant.
struct Turn {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
  FinishReason finish = FinishReason::kStop;
  int prompt_tokens = 0;
  int tokens = 0;
  double first_token_s = 0;
  double total_s = 0;
};

// Renders, submits, parses; `on_event` sees each event as it comes. `stop` set by a signal ends the answer early.
// Errors: what the chat format or the engine refuse.
Result<Turn> ask(TokenEngine& engine, const ChatFormat& format, const Conversation& conversation,
                 DecodingOptions decoding, const std::atomic<bool>& stop,
                 const std::function<void(const ChatEvent&)>& on_event);

}  // namespace rose
