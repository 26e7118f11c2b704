// One generation in progress, and the request it belongs to. Owned by the scheduler; steps in flight keep it alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "decode/decoder.h"
#include "decode/sampling/sampling_state.h"
#include "engine/request.h"
#include "kv/page_hash.h"

namespace rose {

enum class Phase : std::uint8_t { kWaiting, kRunning, kFinished };

// Pages of one KV set: logical pages [first, end()). Those before `first` fell out of the window and were recycled.
struct PageList {
  int first = 0;
  std::vector<int> pages;
  int end() const { return first + static_cast<int>(pages.size()); }
};

struct ActiveRequest {
  Request request;
  std::uint64_t arrival = 0;  // orders requests of equal priority
  Time submitted{};
  std::optional<Time> first_scheduled;
  bool started = false;         // RequestSink::started was reported
  int cached_tokens = 0;        // prompt tokens of choice 0 found in the prefix cache
  int choices_left = 0;         // not finished
  bool prompt_planned = false;  // the pages that choices share are on their way: the other choices may start
  PageHash root;
};

struct Sequence {
  std::shared_ptr<ActiveRequest> owner;
  int choice = 0;
  Phase phase = Phase::kWaiting;

  std::vector<std::int32_t> tokens;  // prompt and generated, as far as committed
  int prompt_tokens = 0;
  int generated_max = 0;
  int generated() const { return static_cast<int>(tokens.size()) - prompt_tokens; }

  // Planned steps have run when these hold:
  int kv_tokens = 0;  // positions in KV
  int pending = 0;    // rows sampled in steps that are not committed
  int steps_in_flight = 0;
  std::uint64_t last_step = 0;  // the last step that names this sequence's pages

  int slot = -1;                 // row of the device's table of last tokens, while running
  std::vector<PageList> pages;   // by KV set
  std::vector<PageHash> hashes;  // of the full pages of known tokens
  int published = 0;             // pages [0, published) were offered for sharing
  int preemptions = 0;

  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<SamplingState> sampling;
  std::shared_ptr<TokenMask> mask;

  int length() const { return static_cast<int>(tokens.size()) + pending; }  // without drafts
  // The next step depends on tokens that must have been seen: drafts are guessed from them, penalties count them, a
  // grammar follows them.
  bool needs_tokens() const { return mask || sampling->needs_tokens() || decoder->drafts_max() > 0; }
  bool drafts_allowed() const { return !mask && !sampling->needs_tokens() && decoder->drafts_max() > 0; }
};

using SequencePtr = std::shared_ptr<Sequence>;

// Who comes first: smaller priority, then earlier arrival, then smaller choice. Sequences later in this order are the
// ones preempted.
struct SequenceOrder {
  bool operator()(const SequencePtr& a, const SequencePtr& b) const {
    if (a->owner->request.priority != b->owner->request.priority) {
      return a->owner->request.priority < b->owner->request.priority;
    }
    if (a->owner->arrival != b->owner->arrival) return a->owner->arrival < b->owner->arrival;
    return a->choice < b->choice;
  }
};

}  // namespace rose
