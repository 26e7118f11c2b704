// Requests of random tokens that the prefix cache has never seen, and sinks that note when each token came.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "engine/router.h"

namespace rose {

// Times are taken on the engine's thread, as the token is delivered. One sequence.
class TimedSink final : public RequestSink {
 public:
  void deliver(std::span<const TokenEvent> events) override;

  // When each token came, as soon as there are `tokens` of them. Throws where the sequence failed or ended before.
  std::vector<Time> wait_tokens(std::size_t tokens);
  void wait_end();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Time> arrivals_;
  std::optional<FinishReason> finish_;
  std::string error_;
};

class BenchRequests {
 public:
  BenchRequests(TokenEngine& engine, int vocabulary) : engine_(engine), vocabulary_(vocabulary) {}

  struct Sent {
    RequestId id = 0;
    Time at;
    std::shared_ptr<TimedSink> sink;
  };
  // Prompt and salt are new in every request. Throws StartError where the engine refuses it.
  Sent send(int prompt_tokens, int max_tokens);

  TokenEngine& engine() { return engine_; }

 private:
  TokenEngine& engine_;
  int vocabulary_;
  RequestId last_id_ = 0;
};

}  // namespace rose
