#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace rose {

Scheduler::Scheduler(const SchedulerLimits& limits, DecoderFactory decoders)
    : limits_(limits),
      decoders_(decoders ? std::move(decoders) : [] { return std::make_unique<SamplingDecoder>(); }),
      tables_(limits.sets, limits.page_size, limits.prefix_cache, mix64(limits.random_seed)) {
  CHECK(limits.rows_max > 0 && limits.logit_rows_max > 0 && limits.sequences_max > 0 && limits.context_max > 1,
        "rows {}, logit rows {}, sequences {}, context {}", limits.rows_max, limits.logit_rows_max,
        limits.sequences_max, limits.context_max);
  for (int set = 0; set < tables_.sets(); ++set) {
    const int window = limits.sets[static_cast<std::size_t>(set)].window;
    const int least = std::min((limits.context_max + limits.page_size - 1) / limits.page_size,
                               window == 0 ? INT32_MAX : windowed_pages_max(window, 1, limits.page_size));
    CHECK(tables_.pool(set).total() >= least, "KV set {} has {} pages; one sequence of {} tokens needs {}", set,
          tables_.pool(set).total(), limits.context_max, least);
  }
  for (int slot = limits.sequences_max - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::add(Request request, Time now) {
  const RequestId id = request.id;
  CHECK(!requests_.contains(id), "request {} is live already", id);
  CHECK(!request.prompt.empty() && static_cast<int>(request.prompt.size()) < limits_.context_max && request.n > 0,
        "a prompt of {} tokens, {} choices", request.prompt.size(), request.n);
  auto owner = std::make_shared<ActiveRequest>();
  owner->request = std::move(request);
  owner->arrival = ++arrivals_;
  owner->submitted = now;
  owner->choices_left = owner->request.n;
  owner->root = tables_.root(owner->request.cache_salt);
  if (!limits_.prefix_cache) {  // only the request's own choices may share: a name that nobody else has
    owner->root = page_hash(owner->root, std::span(owner->request.prompt).first(1));
    owner->root.low ^= mix64(owner->arrival);
  }
  Entry entry{.request = owner};
  for (int choice = 0; choice < owner->request.n; ++choice) {
    entry.sequences.push_back(make_sequence(owner, choice));
    waiting_.insert(entry.sequences.back());
  }
  requests_.emplace(id, std::move(entry));
}

SequencePtr Scheduler::make_sequence(const std::shared_ptr<ActiveRequest>& owner, int choice) const {
  const Request& request = owner->request;
  auto s = std::make_shared<Sequence>();
  s->owner = owner;
  s->choice = choice;
  s->tokens = request.prompt;
  s->prompt_tokens = static_cast<int>(request.prompt.size());
  s->generated_max = std::min(request.decoding.max_tokens, limits_.context_max - s->prompt_tokens);
  s->pages.resize(limits_.sets.size());
  s->decoder = decoders_();
  // Without a seed, requests differ from each other and from the same request at the next start.
  const std::uint64_t seed = request.decoding.seed.value_or(random_bits(limits_.random_seed, request.id));
  s->sampling =
      std::make_unique<SamplingState>(request.decoding, seed + static_cast<std::uint64_t>(choice), request.prompt);
  if (!request.masks.empty()) s->mask = request.masks.at(static_cast<std::size_t>(choice));
  return s;
}

void Scheduler::cancel(RequestId id) { end_request(id, FinishReason::kCancelled); }

void Scheduler::cancel_all() {
  while (!requests_.empty()) end_request(requests_.begin()->first, FinishReason::kCancelled);
}

void Scheduler::end_request(RequestId id, FinishReason reason) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const std::vector<SequencePtr> sequences = found->second.sequences;  // finish() erases the entry
  for (const SequencePtr& s : sequences) {
    events_.push_back({.request = s->owner, .event = {.choice = s->choice, .finish = reason}});
    finish(s, reason);
  }
}

void Scheduler::expire(Time now) {
  std::vector<RequestId> expired;
  for (const auto& [id, entry] : requests_) {
    if (entry.request->request.deadline && *entry.request->request.deadline <= now) expired.push_back(id);
  }
  for (const RequestId id : expired) end_request(id, FinishReason::kTimeout);
}

Step Scheduler::next(Time now) {
  expire(now);
  free_slots_.insert(free_slots_.end(), released_slots_.rbegin(), released_slots_.rend());
  released_slots_.clear();
  Step step{.number = planned_ + 1};
  // A row of a decoding sequence is a token somebody waits for; chunks of prompts fill what is left.
  const std::vector<SequencePtr> running(running_.begin(), running_.end());
  for (const bool decodes : {true, false}) {
    for (const SequencePtr& s : running) {
      if (s->phase == Phase::kRunning && (s->length() - s->kv_tokens <= 1) == decodes && s->last_step < step.number) {
        plan(s, step);
      }
    }
  }
  admit(step, now);
  if (step.empty()) {
    CHECK(planned_ > committed_ || requests_.empty(), "{} requests, {} running sequences, and nothing to do",
          requests_.size(), running_.size());
    return step;
  }
  planned_ = step.number;
  return step;
}

int Scheduler::logit_rows_left(const Sequence& s, const Step& step) const {
  int left = limits_.logit_rows_max - step.logit_rows;
  const int each = s.sampling->adjustments_max();
  if (each > 0) left = std::min(left, (limits_.adjustments_max - step.adjustments) / each);
  return left;
}

void Scheduler::propose_drafts(Sequence& s, const Step& step, std::vector<std::int32_t>& drafts) const {
  if (!s.drafts_allowed()) return;
  // The last token of a sequence needs no drafts after it.
  const int count = std::min({s.decoder->drafts_max(), limits_.rows_max - step.rows - 1, logit_rows_left(s, step) - 1,
                              s.generated_max - s.generated() - 1});
  if (count <= 0) return;
  s.decoder->propose(s.tokens, count, drafts);
  CHECK(static_cast<int>(drafts.size()) <= count, "{} drafts, {} asked for", drafts.size(), count);
}

bool Scheduler::plan(const SequencePtr& s, Step& step) {
  if (s->pending > 0 && s->needs_tokens()) return false;
  if (s->generated() + s->pending >= s->generated_max) return false;
  const int remaining = s->length() - s->kv_tokens;
  CHECK(remaining > 0, "{} positions in KV, {} tokens", s->kv_tokens, s->length());
  const bool token_on_device = s->kv_tokens >= static_cast<int>(s->tokens.size());
  StepPart part{.sequence = s, .start = s->kv_tokens, .slot = s->slot, .token_on_device = token_on_device};
  if (remaining == 1) propose_drafts(*s, step, part.drafts);

  int rows = std::min(remaining + static_cast<int>(part.drafts.size()), limits_.rows_max - step.rows);
  if (rows >= remaining && logit_rows_left(*s, step) < 1) rows = remaining - 1;
  if (rows <= 0) return false;
  tables_.recycle(*s);
  rows = secure_pages(s, rows, step);
  if (rows <= 0) return false;

  part.new_tokens = rows;
  part.drafts.resize(static_cast<std::size_t>(std::max(0, rows - remaining)));
  part.logit_rows = rows >= remaining ? 1 + static_cast<int>(part.drafts.size()) : 0;
  part.first_number = s->generated() + s->pending;
  tables_.extend(*s, s->kv_tokens + rows);
  s->kv_tokens += rows;
  s->pending += part.logit_rows;
  ++s->steps_in_flight;
  s->last_step = step.number;
  step.rows += rows;
  step.logit_rows += part.logit_rows;
  step.adjustments += part.logit_rows * s->sampling->adjustments_max();
  // Steps run in order, and within a step every layer appends all rows before it reads any: whoever is planned from now
  // on may share these pages.
  if (limits_.prefix_cache || s->owner->request.n > 1) tables_.publish(*s);
  if (s->kv_tokens >= (s->prompt_tokens - 1) / limits_.page_size * limits_.page_size) s->owner->prompt_planned = true;
  step.parts.push_back(std::move(part));
  return true;
}

int Scheduler::secure_pages(const SequencePtr& s, int rows, Step& step) {
  for (;;) {
    const int possible = tables_.rows_with_pages(*s, rows);
    if (possible > 0 || tables_.pages_coming(*s)) return possible;
    const SequencePtr last = *running_.rbegin();
    if (!SequenceOrder{}(s, last)) return 0;  // all that run come before s
    preempt(last, step);
  }
}

void Scheduler::preempt(const SequencePtr& victim, Step& step) {
  for (StepPart& part : step.parts) {
    if (part.sequence == victim) part.pages_given_up = victim->pages;
  }
  leave_running(victim);
  victim->phase = Phase::kWaiting;
  ++victim->preemptions;
  ++counters_.preemptions;
  waiting_.insert(victim);
}

void Scheduler::leave_running(const SequencePtr& s) {
  CHECK(running_.erase(s) == 1, "choice {} of request {} does not run", s->choice, s->owner->request.id);
  tables_.release(*s);
  released_slots_.push_back(s->slot);
  s->slot = -1;
}

void Scheduler::admit(Step& step, Time now) {
  auto next = waiting_.begin();
  while (next != waiting_.end() && step.rows < limits_.rows_max) {
    const SequencePtr s = *next;
    if (s->steps_in_flight > 0) return;  // preempted, and tokens of it are still on their way
    if (s->choice > 0 && !s->owner->prompt_planned) {
      ++next;  // choice 0, which comes before it, computes the prompt for all
      continue;
    }
    if (!make_room(s, step)) return;
    next = waiting_.erase(next);
    start(s, now);
    step.shares_at_start |= s->kv_tokens > 0;
    if (!plan(s, step)) return;
  }
}

bool Scheduler::make_room(const SequencePtr& s, Step& step) {
  for (;;) {
    if (static_cast<int>(running_.size()) == limits_.sequences_max && !preempt_for(*s, step)) return false;
    if (free_slots_.empty()) return false;  // the next step has the slot of the one that was preempted
    tables_.share_prefix(*s);
    if (fits(*s)) return true;
    tables_.release(*s);
    for (int set = 0; set < tables_.sets(); ++set) {
      if (tables_.pool(set).fenced() > 0) return false;  // look again when they are back
    }
    if (!preempt_for(*s, step)) return false;
  }
}

bool Scheduler::preempt_for(const Sequence& s, Step& step) {
  if (running_.empty()) return false;
  const SequencePtr last = *running_.rbegin();
  if (last->owner->request.priority <= s.owner->request.priority) return false;
  preempt(last, step);
  return true;
}

bool Scheduler::fits(const Sequence& s) const {
  // Four times the head room with each preemption; 2^20 tokens are more than any context.
  const int head_room = limits_.page_size << std::min(2 * s.preemptions, 12);
  for (int set = 0; set < tables_.sets(); ++set) {
    std::int64_t needed = tables_.pages_needed(s, set, static_cast<int>(s.tokens.size()) + 1, limits_.rows_max);
    for (const SequencePtr& r : running_) {
      const int most = r->prompt_tokens + r->generated_max;
      needed += tables_.pages_needed(*r, set, std::min(r->length() + head_room, most), limits_.rows_max);
    }
    if (needed > tables_.pool(set).available()) return false;
  }
  return true;
}

void Scheduler::start(const SequencePtr& s, Time now) {
  s->phase = Phase::kRunning;
  s->slot = free_slots_.back();
  free_slots_.pop_back();
  running_.insert(s);
  ActiveRequest& owner = *s->owner;
  if (owner.first_scheduled) return;
  owner.first_scheduled = now;
  owner.cached_tokens = s->kv_tokens;
  counters_.prompt_tokens += owner.request.prompt.size();
  counters_.prompt_tokens_cached += static_cast<std::uint64_t>(s->kv_tokens);
}

void Scheduler::commit(const Step& step, const StepResults& results, Time now) {
  CHECK(step.number == committed_ + 1, "step {} is committed after step {}", step.number, committed_);
  CHECK(results.tokens.size() == static_cast<std::size_t>(step.logit_rows), "{} tokens for {} logit rows",
        results.tokens.size(), step.logit_rows);
  committed_ = step.number;
  std::size_t row = 0;
  for (const StepPart& part : step.parts) {
    apply(part, results, row, now);
    row += static_cast<std::size_t>(part.logit_rows);
  }
  tables_.committed(step.number);
}

void Scheduler::apply(const StepPart& part, const StepResults& results, std::size_t row, Time now) {
  const SequencePtr& s = part.sequence;
  --s->steps_in_flight;
  s->pending -= part.logit_rows;
  if (s->phase == Phase::kFinished || part.logit_rows == 0) return;
  const auto sampled = results.tokens.subspan(row, static_cast<std::size_t>(part.logit_rows));
  const int taken = s->decoder->accept(part.drafts, sampled);
  CHECK(taken >= 1 && taken <= part.logit_rows, "{} of {} sampled tokens were taken", taken, part.logit_rows);
  // Rejected drafts left keys and values behind the accepted ones; the next rows overwrite them.
  if (s->phase == Phase::kRunning && !part.drafts.empty()) s->kv_tokens = part.start + taken;

  for (int i = 0; i < taken; ++i) {
    const std::int32_t token = sampled[static_cast<std::size_t>(i)];
    if (token < 0) {
      TokenEvent event{.choice = s->choice, .finish = FinishReason::kFailed};
      event.error = "numerical error: the model's output was not a number";
      events_.push_back({.request = s->owner, .event = std::move(event)});
      tables_.forget(*s);
      finish(s, FinishReason::kFailed);
      return;
    }
    const std::optional<FinishReason> end = append(*s, token);
    emit_token(*s, results, row + static_cast<std::size_t>(i), end, now);
    if (end) {
      finish(s, *end);
      return;
    }
  }
  if (s->phase == Phase::kRunning && limits_.prefix_cache) tables_.publish(*s);
}

std::optional<FinishReason> Scheduler::append(Sequence& s, std::int32_t token) {
  s.tokens.push_back(token);
  s.sampling->advance(token);
  if (s.mask) s.mask->advance(token);
  ++counters_.generated_tokens;
  const DecodingOptions& options = s.owner->request.decoding;
  if (!options.ignore_stop && std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) {
    return FinishReason::kStop;
  }
  if (s.generated() >= s.generated_max) return FinishReason::kLength;
  return std::nullopt;
}

void Scheduler::emit_token(const Sequence& s, const StepResults& results, std::size_t row,
                           std::optional<FinishReason> finish, Time now) {
  RequestEvent out{.request = s.owner, .event = {.choice = s.choice, .token = s.tokens.back(), .finish = finish}};
  const int wanted = s.sampling->options().top_logprobs;
  if (wanted >= 0) {
    out.event.logprob = results.logprobs[row];
    for (std::size_t i = 0; i < static_cast<std::size_t>(wanted); ++i) {
      const std::size_t at = row * ops::kTopLogprobsMax + i;
      if (results.top_tokens[at] < 0) break;  // the vocabulary is smaller
      out.event.top_logprobs.push_back({results.top_tokens[at], results.top_logprobs[at]});
    }
  }
  ActiveRequest& owner = *s.owner;
  if (!owner.started) {
    owner.started = true;
    out.started = RequestTimes{.queued_s = seconds_between(owner.submitted, *owner.first_scheduled),
                               .prefill_s = seconds_between(*owner.first_scheduled, now)};
  }
  events_.push_back(std::move(out));
}

void Scheduler::finish(const SequencePtr& s, FinishReason reason) {
  if (s->phase == Phase::kRunning) leave_running(s);
  if (s->phase == Phase::kWaiting) waiting_.erase(s);
  s->phase = Phase::kFinished;
  ActiveRequest& owner = *s->owner;
  if (s->choice == 0) owner.prompt_planned = true;  // the others compute it themselves
  const auto entry = requests_.find(owner.request.id);
  std::erase(entry->second.sequences, s);
  if (--owner.choices_left > 0) return;
  ++counters_.requests_finished[static_cast<std::size_t>(reason)];
  requests_.erase(entry);
}

std::vector<RequestEvent> Scheduler::take_events() { return std::exchange(events_, {}); }

int Scheduler::requests_running() const {
  return static_cast<int>(std::ranges::count_if(requests_, [](const auto& entry) {
    return std::ranges::any_of(entry.second.sequences, [](const auto& s) { return s->phase == Phase::kRunning; });
  }));
}

int Scheduler::requests_waiting() const { return static_cast<int>(requests_.size()) - requests_running(); }

std::optional<Time> Scheduler::next_deadline() const {
  std::optional<Time> earliest;
  for (const auto& [id, entry] : requests_) {
    const auto& deadline = entry.request->request.deadline;
    if (deadline && (!earliest || *deadline < *earliest)) earliest = deadline;
  }
  return earliest;
}

void Scheduler::check_invariant() const {
  tables_.check_invariant();
  CHECK(
      running_.size() + free_slots_.size() + released_slots_.size() == static_cast<std::size_t>(limits_.sequences_max),
      "{} running, {} + {} slots", running_.size(), free_slots_.size(), released_slots_.size());
  std::vector<std::map<int, int>> references(static_cast<std::size_t>(tables_.sets()));
  std::size_t sequences = 0;
  for (const auto& [id, entry] : requests_) {
    CHECK(static_cast<int>(entry.sequences.size()) == entry.request->choices_left, "request {}", id);
    for (const SequencePtr& s : entry.sequences) {
      ++sequences;
      CHECK((s->phase == Phase::kRunning ? running_ : waiting_).contains(s), "request {} is nowhere", id);
      CHECK(s->phase == Phase::kRunning || s->kv_tokens == 0, "request {} waits with {} positions in KV", id,
            s->kv_tokens);
      for (std::size_t set = 0; set < s->pages.size(); ++set) {
        CHECK(s->phase == Phase::kRunning || s->pages[set].pages.empty(), "request {} waits with pages", id);
        for (const int page : s->pages[set].pages) ++references[set][page];
      }
    }
  }
  CHECK(sequences == running_.size() + waiting_.size(), "{} sequences", sequences);
  for (int set = 0; set < tables_.sets(); ++set) {
    const auto& held = references[static_cast<std::size_t>(set)];
    CHECK(tables_.pool(set).live() == static_cast<int>(held.size()), "KV set {}: {} live pages, {} held", set,
          tables_.pool(set).live(), held.size());
    for (const auto& [page, count] : held) {
      CHECK(tables_.pool(set).references(page) == count, "page {} has {} references, {} held", page,
            tables_.pool(set).references(page), count);
    }
  }
}

}  // namespace rose
