// A step: every sequence in it brings new tokens and asks for rows of logits. Prefill, chunks of it, decode and the
// verification of drafts are only values of these two numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "ops/sample/sample.h"

namespace rose {

struct StepPart {
  SequencePtr sequence = {};
  int start = 0;                          // position of the first new token
  int new_tokens = 0;                     // rows
  int logit_rows = 0;                     // the last ones of them
  int first_number = 0;                   // number of the generated token that the first logit row draws
  int slot = -1;                          // where the drawn token goes in the table of last tokens
  bool token_on_device = false;           // the (only) new token is the table's entry `slot`
  std::vector<std::int32_t> drafts = {};  // the last new tokens; one logit row each, and one for the token before them
  // Set where the sequence was preempted by a later part of this very step: it holds no pages now, but the step names
  // those it had.
  std::vector<PageList> pages_given_up = {};

  const PageList& pages(std::size_t set) const {
    return pages_given_up.empty() ? sequence->pages[set] : pages_given_up[set];
  }
};

struct Step {
  std::uint64_t number = 0;  // 1, 2, ...: steps run and are committed in this order
  std::vector<StepPart> parts = {};
  int rows = 0;
  int logit_rows = 0;
  int adjustments = 0;  // at most so many
  // A sequence that starts in this step shares pages, perhaps with rows of this very step: no layer may read the cache
  // before the step's rows are appended to it.
  bool shares_at_start = false;
  bool empty() const { return parts.empty(); }
};

// What a step sampled, logit rows in the order of the parts.
struct StepResults {
  std::span<const std::int32_t> tokens = {};      // [m]; -1: the row's logits were not numbers
  std::span<const float> logprobs = {};           // [m]
  std::span<const std::int32_t> top_tokens = {};  // [m, kTopLogprobsMax], empty where no row asked
  std::span<const float> top_logprobs = {};
  double seconds = 0;  // that the step took
};

}  // namespace rose
