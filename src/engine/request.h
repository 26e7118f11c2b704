// What a caller asks of the engine, and what comes back: token ids in, token ids out. The front end includes this file
// and router.h, and nothing else of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "decode/decoding_options.h"
#include "decode/token_mask.h"

namespace rose {

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kTimeout, kFailed };

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

// One generated token of one choice, or the end of a choice without one.
struct TokenEvent {
  int choice = 0;
  std::int32_t token = -1;                      // -1: no token in this event
  float logprob = 0;                            // if asked for
  std::vector<TokenLogprob> top_logprobs = {};  // if asked for
  std::optional<FinishReason> finish = {};      // set in the last event of the choice
  std::string error = {};                       // with kFailed: what went wrong, for the log and the caller
};

struct RequestTimes {
  double queued_s = 0;   // submit to first scheduled
  double prefill_s = 0;  // first scheduled to first token
};

// Receives events in order, from the engine's loop thread, at most once a step; must not block or call the engine.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void deliver(std::span<const TokenEvent> events) = 0;
  // Before the first token: prompt tokens served from the prefix cache, and how long the parts took.
  virtual void started(int cached_tokens, const RequestTimes& times) { (void)cached_tokens, (void)times; }
};

using RequestId = std::uint64_t;

struct Request {
  RequestId id = 0;                       // chosen by the caller, unique among live ones
  std::vector<std::int32_t> prompt = {};  // not empty, shorter than the context
  DecodingOptions decoding = {};
  int n = 1;                                           // choices; they share the prompt's pages
  int priority = 0;                                    // smaller runs first
  std::string cache_salt = {};                         // prefixes are shared only between equal salts
  std::optional<Time> deadline = {};                   // then the request ends with kTimeout
  std::vector<std::shared_ptr<TokenMask>> masks = {};  // empty, or one a choice
  std::shared_ptr<RequestSink> sink = {};
};

}  // namespace rose
