// The four verbs: submit, cancel, stats, stop. The front end knows an engine, or several behind a router, by these
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace rose {

struct EngineLimits {   // what a front end may ask for
  int context_max = 0;  // prompt + generated tokens of a sequence
  int vocabulary = 0;
  int sequences_max = 0;  // running at once
  int requests_waiting_max = 0;
};

struct EngineStats {
  int requests_running = 0;
  int requests_waiting = 0;
  std::vector<int> pages_total, pages_live, pages_cached;  // by KV set
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;  // totals since start
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t requests_finished[5] = {};  // by FinishReason
  double step_seconds = 0;                  // total time in steps
  double heartbeat_age_s = 0;               // since the loop last turned
  std::uint64_t logits_hash = 0;            // EngineOptions::hash_logits
};

class TokenEngine {
 public:
  virtual ~TokenEngine() = default;
  // Errors: 400 for a request outside `limits()`, 429 when requests_waiting_max wait, 503 after stop().
  virtual Result<Ok> submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;  // seen at the next step; unknown ids are ignored
  virtual EngineStats stats() const = 0;
  virtual EngineLimits limits() const = 0;
  // New requests are refused; running ones get until `deadline`, then are cancelled. Returns when the loop has ended.
  virtual void stop(Time deadline) = 0;
};

}  // namespace rose
