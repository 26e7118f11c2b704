#include "bench_requests.h"

#include "base/random.h"

namespace rose {

void TimedSink::deliver(std::span<const TokenEvent> events) {
  const Time now = Clock::now();
  const std::scoped_lock lock(mutex_);
  for (const TokenEvent& event : events) {
    if (event.token >= 0) arrivals_.push_back(now);
    if (event.finish) --running_;
    if (!event.error.empty()) error_ = event.error;
  }
  changed_.notify_all();
}

std::vector<Time> TimedSink::wait_tokens(std::size_t tokens) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0 || !error_.empty() || arrivals_.size() >= tokens; });
  if (!error_.empty()) throw std::runtime_error(error_);
  if (arrivals_.size() < tokens) {
    throw std::runtime_error(fmt::format("a request ended after {} of {} tokens", arrivals_.size(), tokens));
  }
  return arrivals_;
}

void TimedSink::wait_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

BenchRequests::Sent BenchRequests::send(int prompt_tokens, int max_tokens, int sequences) {
  Sent sent{.id = ++last_id_, .at = {}, .sink = std::make_shared<TimedSink>(sequences)};
  Request request{.id = sent.id, .n = sequences, .sink = sent.sink};
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(random_bits(sent.id, static_cast<std::uint64_t>(i)) %
                                                       static_cast<std::uint64_t>(vocabulary_)));
  }
  request.decoding.max_tokens = max_tokens;
  request.decoding.ignore_stop = true;
  request.decoding.seed = sent.id;
  request.cache_salt = fmt::format("bench {}", sent.id);
  sent.at = Clock::now();
  const Result<Ok> accepted = engine_.submit(std::move(request));
  if (!accepted) throw StartError(accepted.error().message, kExitUsage);
  return sent;
}

}  // namespace rose
