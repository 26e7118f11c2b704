#include "server/openai/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "server/openai/errors.h"
#include "tokenizer/utf8.h"

namespace rose::openai {

Generation::Generation(GenerationSetup setup, const SamplingRequest& sampling)
    : setup_(std::move(setup)), streams_(sampling.stream), times_(static_cast<std::size_t>(sampling.n)) {}

void Generation::run(Request request) {
  id_ = request.id;
  prompt_tokens_ = static_cast<int>(request.prompt.size());
  max_tokens_ = request.decoding.max_tokens;
  request.sink = shared_from_this();
  // The engine may deliver before submit() returns, and the client may leave as early.
  setup_.reply->on_abandoned([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_) return;
    self->model().engine->cancel(self->id_);
    int tokens = 0;
    for (std::size_t i = 0; i < self->times_.size(); ++i) tokens += self->tokens_of(static_cast<int>(i));
    self->setup_.service->metrics().client_left(tokens);
    self->end(RequestSummary::End::kAbort);
  });
  const Result<Ok> admitted = model().engine->submit(std::move(request));
  if (!admitted) {
    if (admitted.error().status == 429) setup_.service->metrics().refused();
    RequestError error = admitted.error();
    if (error.status == 429) error = {503, error.message, "", "queue_full"};  // the server is full, not a key's share
    return setup_.reply->send(error_response(error));
  }
  setup_.reply->post([self = shared_from_this()] { self->drain(); });
}

void Generation::deliver(std::span<const TokenEvent> events) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.insert(inbox_.end(), events.begin(), events.end());
    if (scheduled_) return;
    scheduled_ = true;
  }
  setup_.reply->post([self = shared_from_this()] { self->drain(); });
}

void Generation::started(int cached_tokens, const RequestTimes& times) {
  const std::lock_guard lock(mutex_);
  cached_tokens_ = cached_tokens;
  engine_times_ = times;
}

void Generation::drain() {
  std::vector<TokenEvent> events;
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = false;
    events.swap(inbox_);
  }
  if (over_) return;
  if (!begun_) {
    begun_ = true;
    begin();
  }
  if (!events.empty()) take_batch(events);
}

void Generation::take_batch(const std::vector<TokenEvent>& events) {
  for (const TokenEvent& event : events) {
    CHECK(event.choice >= 0 && event.choice < static_cast<int>(times_.size()), "choice {} of {}", event.choice,
          times_.size());
    if (event.token >= 0) ++times_[static_cast<std::size_t>(event.choice)].fresh;
    if (event.finish) ++choices_ended_;
  }
  observe_times(Clock::now());
  for (const TokenEvent& event : events) {
    if (event.finish == FinishReason::kFailed) {
      spdlog::error("request {} failed: {}", id_, event.error);
      return fail({500, "The model could not finish this answer: " + valid_utf8(event.error), "", "generation_failed"});
    }
    if (event.finish == FinishReason::kTimeout) {
      return fail({504, "The request took longer than the server allows.", "", "request_timeout"});
    }
    if (event.finish == FinishReason::kCancelled && !complete()) {
      return fail({503, "The server is shutting down.", "", "shutting_down"});
    }
    take(event);
  }
  flush();
  if (!complete()) return;
  if (choices_ended_ < static_cast<int>(times_.size())) model().engine->cancel(id_);  // a stop string, we are done
  end(how_it_ended());  // before the client can see the end, and look at the counters
  finish();
}

void Generation::observe_times(Time now) {
  Metrics& metrics = setup_.service->metrics();
  for (ChoiceTimes& choice : times_) {
    if (choice.fresh == 0) continue;
    if (first_token_s_ < 0) {
      first_token_s_ = seconds_between(setup_.arrived, now);
      metrics.first_token(first_token_s_);
    }
    if (choice.last != Time{}) metrics.next_tokens(choice.fresh, seconds_between(choice.last, now));
    choice.last = now;
    choice.fresh = 0;
  }
}

void Generation::fail(const RequestError& error) {
  model().engine->cancel(id_);
  end(RequestSummary::End::kError);
  if (streams_) {  // the 200 is out: the error is an event, never a silent end
    setup_.reply->write_event(event_of(error_object(error)));
    setup_.reply->write_event(std::string(kDoneEvent));
    setup_.reply->end_events();
  } else {
    setup_.reply->send(error_response(error));
  }
}

Usage Generation::usage() const {
  Usage usage{.prompt_tokens = prompt_tokens_};
  for (std::size_t i = 0; i < times_.size(); ++i) usage.completion_tokens += tokens_of(static_cast<int>(i));
  const std::lock_guard lock(mutex_);
  usage.cached_tokens = cached_tokens_;
  return usage;
}

void Generation::end(RequestSummary::End how) {
  over_ = true;
  const Usage used = usage();
  RequestSummary summary{.end = how,
                         .prompt_tokens = used.prompt_tokens,
                         .cached_tokens = used.cached_tokens,
                         .tokens = used.completion_tokens,
                         .max_tokens = max_tokens_,
                         .n = static_cast<int>(times_.size()),
                         .first_token_s = first_token_s_,
                         .total_s = seconds_between(setup_.arrived, Clock::now())};
  for (int i = 0; i < summary.n; ++i) summary.tokens_longest = std::max(summary.tokens_longest, tokens_of(i));
  {
    const std::lock_guard lock(mutex_);
    summary.queue_s = engine_times_.queued_s;
    summary.prefill_s = engine_times_.prefill_s;
  }
  setup_.service->metrics().finished(summary);
}

RequestError context_error(int context_max, std::int64_t prompt_tokens, std::string_view param) {
  return {
      400,
      fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in {} tokens. Please "
                  "reduce the length of the {}.",
                  context_max, param, prompt_tokens, param),
      std::string(param), "context_length_exceeded"};
}

Result<Request> make_request(Service& service, const ServedModel& model, const SamplingRequest& sampling,
                             std::vector<TokenId> prompt, std::string_view prompt_param) {
  const EngineLimits limits = model.engine->limits();
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  if (prompt_tokens >= limits.context_max) return context_error(limits.context_max, prompt_tokens, prompt_param);
  Request request;
  request.id = service.next_id();
  request.prompt = std::move(prompt);
  request.decoding = sampling.decoding;
  // More than fits is what clients ask for who mean "as much as there is".
  const int room = limits.context_max - static_cast<int>(prompt_tokens);
  const int asked = sampling.decoding.max_tokens;
  request.decoding.max_tokens = asked > 0 ? std::min(asked, room) : room;
  request.decoding.min_tokens = std::min(request.decoding.min_tokens, request.decoding.max_tokens);
  request.n = sampling.n;
  request.priority = sampling.priority;
  request.cache_salt = sampling.cache_salt;
  if (service.options().request_timeout_s > 0) {
    request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(service.options().request_timeout_s));
  }
  return request;
}

}  // namespace rose::openai
