// One request under way: takes tokens from the engine's thread to the connection's queue, notices that the client has
// left, keeps the times. What the tokens become is the endpoint's part.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/http.h"
#include "server/openai/service.h"

namespace rose::openai {

struct GenerationSetup {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<http::Reply> reply;
  Service* service = nullptr;  // outlives every request
  Time arrived{};
};

class Generation : public RequestSink, public std::enable_shared_from_this<Generation> {
 public:
  // Submits; answers with the engine's refusal, or leaves the rest to the engine's events. On an endpoint thread.
  void run(Request request);

  void deliver(std::span<const TokenEvent> events) final;
  void started(int cached_tokens, const RequestTimes& times) final;

 protected:
  Generation(GenerationSetup setup, const SamplingRequest& sampling);

  // All on the connection's queue.
  virtual void begin() = 0;  // admitted: an answer in events says hello
  virtual void take(const TokenEvent& event) = 0;
  virtual void flush() = 0;           // the events so far are all there are for now
  virtual bool complete() const = 0;  // every choice is done, whether or not the engine knows
  virtual void finish() = 0;          // after complete(): write the end
  virtual RequestSummary::End how_it_ended() const = 0;
  virtual int tokens_of(int choice) const = 0;

  const ServedModel& model() const { return *setup_.model; }
  http::Reply& reply() { return *setup_.reply; }
  Usage usage() const;  // without reasoning tokens
  RequestId id() const { return id_; }
  bool streams() const { return streams_; }

 private:
  struct ChoiceTimes {
    Time last{};
    int fresh = 0;  // tokens in the batch of events at hand
  };

  void drain();
  void take_batch(const std::vector<TokenEvent>& events);
  void observe_times(Time now);
  void fail(const RequestError& error);
  void end(RequestSummary::End how);

  GenerationSetup setup_;
  const bool streams_;
  RequestId id_ = 0;
  int prompt_tokens_ = 0;
  int max_tokens_ = 0;
  bool begun_ = false;
  bool over_ = false;
  int choices_ended_ = 0;  // by the engine
  double first_token_s_ = -1;
  std::vector<ChoiceTimes> times_;

  mutable std::mutex mutex_;
  bool scheduled_ = false;  // guarded by mutex_, as all below
  std::vector<TokenEvent> inbox_;
  int cached_tokens_ = 0;
  RequestTimes engine_times_;
};

// A model, a fitting prompt, a limit on what may be generated: what every request needs before it is submitted.
// Errors: 400 context_length_exceeded, with `param` naming the field the prompt came from.
Result<Request> make_request(Service& service, const ServedModel& model, const SamplingRequest& sampling,
                             std::vector<TokenId> prompt, std::string_view prompt_param);

// The error for a prompt of this many tokens. Clients read its wording: "maximum context length is N tokens".
RequestError context_error(int context_max, std::int64_t prompt_tokens, std::string_view param);

}  // namespace rose::openai
