// An engine that plays scripts: a thread that delivers the next id of every choice each step.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/router.h"

namespace rose::testing {

class FakeEngine final : public TokenEngine {
 public:
  // The ids of a choice; they are cut by the request's stop tokens and max_tokens. A script that ends without a stop
  // token ends with kLength.
  using Script = std::function<std::vector<std::int32_t>(const Request& request, int choice)>;

  FakeEngine(Script script, EngineLimits limits, std::chrono::microseconds step)
      : script_(std::move(script)), limits_(limits), step_(step), thread_([this] { loop(); }) {}
  ~FakeEngine() override { stop(Clock::now()); }

  Result<Ok> submit(Request request) override {
    const std::lock_guard lock(mutex_);
    if (stopping_) return RequestError{503, "stopped", "", ""};
    if (static_cast<int>(live_.size()) >= limits_.requests_waiting_max) return RequestError{429, "queue full", "", ""};
    Live live{.request = std::move(request), .scripts = {}, .at = {}, .done = {}};
    for (int i = 0; i < live.request.n; ++i) live.scripts.push_back(script_(live.request, i));
    live.at.resize(live.scripts.size());
    live.done.resize(live.scripts.size());
    ++submitted;
    last_request = live.request;
    last_request.sink = nullptr;
    live_.push_back(std::move(live));
    wake_.notify_one();
    return Ok{};
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    for (Live& live : live_) {
      if (live.request.id == id && !live.cancelled) live.cancelled = true, ++cancelled;
    }
    wake_.notify_one();
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.requests_running = static_cast<int>(live_.size());
    stats.pages_total = {100};
    stats.pages_live = {static_cast<int>(live_.size())};
    stats.generated_tokens = generated_;
    stats.heartbeat_age_s = heartbeat_age_s;
    return stats;
  }
  EngineLimits limits() const override { return limits_; }
  void stop(Time deadline) override {
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      wake_.wait_until(lock, deadline, [&] { return live_.empty(); });
      for (Live& live : live_) live.cancelled = true;
      ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<int> submitted{0};
  std::atomic<int> cancelled{0};
  std::atomic<double> heartbeat_age_s{0};
  Request last_request;  // read it when no request is being submitted

 private:
  struct Live {
    Request request;
    std::vector<std::vector<std::int32_t>> scripts;
    std::vector<std::size_t> at;
    std::vector<bool> done;
    bool cancelled = false;
    bool started = false;
  };

  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      if (live_.empty()) {
        wake_.notify_all();
        if (ending_) return;
        wake_.wait(lock, [&] { return !live_.empty() || ending_; });
        continue;
      }
      for (auto it = live_.begin(); it != live_.end();) {
        it = step(*it) ? live_.erase(it) : std::next(it);
      }
      lock.unlock();
      if (step_.count() > 0) std::this_thread::sleep_for(step_);
      lock.lock();
    }
  }

  TokenEvent next(Live& live, std::size_t choice) {
    TokenEvent event{
        .choice = static_cast<int>(choice), .token = -1, .logprob = 0, .top_logprobs = {}, .finish = {}, .error = ""};
    const DecodingOptions& decoding = live.request.decoding;
    const auto& script = live.scripts[choice];
    if (live.cancelled) {
      event.finish = FinishReason::kCancelled;
    } else if (live.at[choice] >= script.size()) {
      event.finish = FinishReason::kLength;
    } else if (script[live.at[choice]] < 0) {  // a script's way to fail
      event.finish = FinishReason::kFailed;
      event.error = "scripted failure";
    } else {
      event.token = script[live.at[choice]++];
      ++generated_;
      if (decoding.top_logprobs >= 0) {
        event.logprob = -0.5f;
        for (int k = 0; k < decoding.top_logprobs; ++k)
          event.top_logprobs.push_back({65 + k, -0.5f - static_cast<float>(k)});
      }
      const auto& stops = decoding.stop_tokens;
      if (!decoding.ignore_stop && std::find(stops.begin(), stops.end(), event.token) != stops.end()) {
        event.finish = FinishReason::kStop;
      } else if (static_cast<int>(live.at[choice]) >= decoding.max_tokens) {
        event.finish = FinishReason::kLength;
      }
    }
    live.done[choice] = event.finish.has_value();
    return event;
  }

  bool step(Live& live) {
    if (!live.started) live.request.sink->started(3, {.queued_s = 0.001, .prefill_s = 0.002});
    live.started = true;
    std::vector<TokenEvent> events;
    for (std::size_t i = 0; i < live.scripts.size(); ++i) {
      if (!live.done[i]) events.push_back(next(live, i));
    }
    live.request.sink->deliver(events);
    return std::all_of(live.done.begin(), live.done.end(), [](bool done) { return done; });
  }

  Script script_;
  const EngineLimits limits_;
  const std::chrono::microseconds step_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Live> live_;
  bool stopping_ = false;
  bool ending_ = false;
  std::uint64_t generated_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rose::testing
