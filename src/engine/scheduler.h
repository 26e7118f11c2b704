// Decides what each step computes. A pure function of what it was told: no device, clock, thread or randomness inside.
//
//   order      smaller priority first, then earlier arrival; sequences that decode come before chunks of prompts
//   admission  in order, never past one that does not fit; a sequence comes in when its known tokens fit beside what
//   the
//              running ones still need
//   pages      a sequence without a page for its next row preempts the last of those behind it in the order: that one
//              gives back all its pages, waits, and later computes its tokens again. The first in the order is never
//              preempted, so it always advances; a preempted sequence demands four times the head room of its previous
//              try before it comes in again, so preemptions of one sequence stay few (scheduler_test.cc)
//   commit     steps are committed in the order they were planned; results of ended sequences are dropped
//
// Whoever takes a step from next() must run it, in order, before or while later ones are planned.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/page_tables.h"
#include "engine/sequence.h"
#include "engine/step.h"

namespace rose {

struct SchedulerLimits {
  int rows_max = 512;        // of one step
  int logit_rows_max = 256;  // of one step
  int sequences_max = 32;    // running at once
  int context_max = 0;       // prompt and generated tokens of a sequence
  int page_size = 32;
  int adjustments_max = 0;  // logit adjustments of one step; at least the vocabulary, so that any one row fits
  bool prefix_cache = true;
  std::uint64_t random_seed = 0;  // of requests without a seed
  std::vector<PageSetLimits> sets = {};
};

// Something to tell a request's sink. `started` is set with its first token.
struct RequestEvent {
  std::shared_ptr<ActiveRequest> request = {};
  TokenEvent event = {};
  std::optional<RequestTimes> started = {};
};

struct SchedulerCounters {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::array<std::uint64_t, 5> requests_finished{};  // by reason of the request's last choice
};

class Scheduler {
 public:
  // An empty factory: plain sampling.
  explicit Scheduler(const SchedulerLimits& limits, DecoderFactory decoders = {});

  // The request has been checked against the limits, and its id is not in use.
  void add(Request request, Time now);
  void cancel(RequestId id);
  void cancel_all();

  // Ends what is past its deadline and plans a step; an empty one when there is nothing to do before the next commit.
  Step next(Time now);
  void commit(const Step& step, const StepResults& results, Time now);

  std::vector<RequestEvent> take_events();

  bool idle() const { return requests_.empty() && planned_ == committed_; }
  int requests_waiting() const;  // no sequence of theirs runs
  int requests_running() const;
  std::optional<Time> next_deadline() const;
  const SchedulerCounters& counters() const { return counters_; }
  const PageTables& tables() const { return tables_; }
  const SchedulerLimits& limits() const { return limits_; }

  // Recounts pages, slots and phases; O(pages).
  void check_invariant() const;

 private:
  struct Entry {
    std::shared_ptr<ActiveRequest> request = {};
    std::vector<SequencePtr> sequences = {};  // not finished ones
  };

  SequencePtr make_sequence(const std::shared_ptr<ActiveRequest>& owner, int choice) const;
  void expire(Time now);
  void end_request(RequestId id, FinishReason reason);

  bool plan(const SequencePtr& s, Step& step);
  void propose_drafts(Sequence& s, const Step& step, std::vector<std::int32_t>& drafts) const;
  int logit_rows_left(const Sequence& s, const Step& step) const;
  int secure_pages(const SequencePtr& s, int rows, Step& step);
  void preempt(const SequencePtr& victim, Step& step);

  void admit(Step& step, Time now);
  bool make_room(const SequencePtr& s, Step& step);
  bool fits(const Sequence& s) const;
  bool preempt_for(const Sequence& s, Step& step);
  void start(const SequencePtr& s, Time now);

  void apply(const StepPart& part, const StepResults& results, std::size_t row, Time now);
  std::optional<FinishReason> append(Sequence& s, std::int32_t token);
  void emit_token(const Sequence& s, const StepResults& results, std::size_t row, std::optional<FinishReason> finish,
                  Time now);
  void finish(const SequencePtr& s, FinishReason reason);
  void leave_running(const SequencePtr& s);

  SchedulerLimits limits_;
  DecoderFactory decoders_;
  PageTables tables_;
  std::map<RequestId, Entry> requests_;
  std::set<SequencePtr, SequenceOrder> waiting_;
  std::set<SequencePtr, SequenceOrder> running_;
  std::vector<int> free_slots_;
  std::vector<int> released_slots_;  // by sequences that the step being planned may still name: free from the next on
  std::vector<RequestEvent> events_;
  SchedulerCounters counters_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t planned_ = 0;    // number of the last step
  std::uint64_t committed_ = 0;  // number of the last committed step
};

}  // namespace rose
