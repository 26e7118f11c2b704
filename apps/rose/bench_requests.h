// Requests of random tokens that the prefix cache has never seen, and sinks that note when each token came.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "engine/router.h"

namespace rose {

// Times are taken on the engine's thread, as the token is delivered. One request, of one sequence or several.
class TimedSink final : public RequestSink {
 public:
  explicit TimedSink(int sequences) : running_(sequences) {}
  void deliver(std::span<const TokenEvent> events) override;

  // When each token came, as soon as there are `tokens` of them. Throws where a sequence failed or all ended before.
  std::vector<Time> wait_tokens(std::size_t tokens);
  void wait_end();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Time> arrivals_;
  int running_;
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
  // Prompt and salt are new in every request, its sequences share them. Throws StartError where the engine refuses it.
  Sent send(int prompt_tokens, int max_tokens, int sequences = 1);

  TokenEngine& engine() { return engine_; }

 private:
  TokenEngine& engine_;
  int vocabulary_;
  RequestId last_id_ = 0;
};

}  // namespace rose
