// Counters and histograms under vLLM's names, so that dashboards and routers made for it read us too. Label values come
// from closed sets only: nothing a client sends becomes one.
#pragma once

#include <memory>
#include <string>

#include "engine/router.h"
#include "server/http.h"

namespace rose {

// How one request went; times in seconds.
struct RequestSummary {
  enum class End { kStop, kLength, kAbort, kError };
  End end = End::kStop;
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int tokens = 0;          // over all choices
  int tokens_longest = 0;  // of the longest choice
  int max_tokens = 0;
  int n = 1;
  double queue_s = 0;
  double prefill_s = 0;
  double first_token_s = -1;  // since the request arrived; -1: none came
  double total_s = 0;
};

class Metrics {
 public:
  Metrics(std::string model_name, std::string version);
  ~Metrics();

  void first_token(double seconds);
  void next_tokens(int tokens, double seconds);  // this many of one choice came together, this long after the last
  void finished(const RequestSummary& request);
  void client_left(int tokens);
  void refused();  // by the queue limit
  void exchange(const http::Exchange& exchange);

  // The text format. `engine` is null while the model loads.
  std::string text(const EngineStats* engine, const EngineLimits* limits) const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace rose
