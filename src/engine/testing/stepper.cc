#include "engine/testing/stepper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/random.h"

namespace rose::testing {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

class DraftDecoder : public Decoder {
 public:
  DraftDecoder(const FakeModelOptions& model, int drafts_max, double quality)
      : model_(model), drafts_max_(drafts_max), quality_(quality) {}

  int drafts_max() const override { return drafts_max_; }

  void propose(std::span<const std::int32_t> tokens, int count_max, std::vector<std::int32_t>& drafts) override {
    std::vector<std::int32_t> known(tokens.begin(), tokens.end());
    const int count = std::min(count_max, 1 + static_cast<int>(random_bits(1, draws_++) % 4));
    for (int i = 0; i < count; ++i) {
      std::int32_t next = std::max(0, reference_next(known, model_));
      if (random_unit(2, draws_++) >= quality_) next = (next + 1) % model_.vocabulary;
      known.push_back(next);
      drafts.push_back(next);
    }
  }

  int accept(std::span<const std::int32_t> drafts, std::span<const std::int32_t> sampled) override {
    return accept_matching(drafts, sampled);
  }

 private:
  FakeModelOptions model_;
  int drafts_max_;
  double quality_;
  std::uint64_t draws_ = 0;
};

BatchLimits batch_limits_of(const StepperOptions& options) {
  BatchLimits limits{.rows_max = options.limits.rows_max, .logit_rows_max = options.limits.logit_rows_max};
  limits.sequences_max = options.limits.sequences_max;
  limits.adjustments_max = options.limits.adjustments_max;
  limits.vocabulary = options.model.vocabulary;
  limits.page_size = options.limits.page_size;
  for (const PageSetLimits& set : options.limits.sets) limits.sets.push_back({set.window, set.pages + 1});
  // Decoding steps are laid out for graphs, as on a GPU.
  const int most = std::min({limits.sequences_max, limits.rows_max, limits.logit_rows_max});
  for (const int rows : {2, 5}) {
    if (rows < most) limits.graph_rows.push_back(rows);
  }
  limits.graph_rows.push_back(most);
  return limits;
}

}  // namespace

Stepper::Stepper(const StepperOptions& options) : options_(options) {
  SchedulerLimits& limits = options_.limits;
  if (limits.context_max == 0) limits.context_max = options_.model.positions_max;
  if (limits.adjustments_max == 0) limits.adjustments_max = options_.model.vocabulary;
  batch_limits_ = batch_limits_of(options_);
  model_ = make_fake_model(options_.model);
  const KvShape shape{.page_size = limits.page_size, .kv_heads = 1, .head_dim = 1, .dtype = DType::kI32};
  std::vector<int> pages;
  for (const PageSetLimits& set : limits.sets) pages.push_back(set.pages);
  const auto logit_bytes = sizeof(float) * static_cast<std::size_t>(limits.logit_rows_max * options_.model.vocabulary);
  arena_ = std::make_unique<Arena>(
      Device{}, KvCache::bytes(model_->kv_sets(), pages, shape) + Arena::aligned(logit_bytes), "stepper");
  kv_ = std::make_unique<KvCache>(model_->kv_sets(), pages, shape, *arena_);
  logits_ = arena_->tensor("logits", DType::kF32, {limits.logit_rows_max, options_.model.vocabulary});
  last_tokens_.assign(static_cast<std::size_t>(limits.sequences_max), -1);
  scheduler_ = std::make_unique<Scheduler>(limits, options_.decoders);
}

void Stepper::add(Request request, Time now) {
  outcomes_[request.id].assign(static_cast<std::size_t>(request.n), {});
  scheduler_->add(std::move(request), now);
  scheduler_->check_invariant();
}

void Stepper::cancel(RequestId id) {
  scheduler_->cancel(id);
  scheduler_->check_invariant();
  take_events();
}

bool Stepper::plan(Time now) {
  Step step = scheduler_->next(now);
  scheduler_->check_invariant();
  take_events();
  last_planned_ = step;
  if (step.empty()) return false;
  check_writers(step);
  Planned planned{.step = std::move(step), .arena = {}, .batch = {}};
  planned.arena = std::make_unique<Arena>(Device{}, Arena::aligned(StepBatch::bytes(batch_limits_)), "step");
  planned.batch = std::make_unique<StepBatch>(batch_limits_, *planned.arena);
  planned.batch->fill(planned.step);
  planned_.push_back(std::move(planned));
  return true;
}

// A page that somebody else holds is immutable, and no two rows of a step write one slot. What a sequence sees of the
// positions before a step was written by earlier steps, unless the step says otherwise: kernels read it while rows are
// still being appended.
void Stepper::check_writers(const Step& step) const {
  const int page_size = options_.limits.page_size;
  for (std::size_t set = 0; set < options_.limits.sets.size(); ++set) {
    std::set<int> written;
    for (const StepPart& part : step.parts) {
      const PageList& list = part.pages(set);
      for (int p = part.start / page_size; p <= (part.start + part.new_tokens - 1) / page_size; ++p) {
        const int page = list.pages.at(static_cast<std::size_t>(p - list.first));
        CHECK(written.insert(page).second, "page {} of KV set {} has two writers", page, set);
      }
    }
    for (const StepPart& part : step.parts) {
      const PageList& list = part.pages(set);
      for (int p = list.first; p < part.start / page_size; ++p) {
        const int page = list.pages.at(static_cast<std::size_t>(p - list.first));
        CHECK(step.shares_at_start || !written.contains(page), "page {} of KV set {} is read and written in one step",
              page, set);
      }
    }
  }
}

void Stepper::commit(Time now) {
  CHECK(!planned_.empty(), "no step was planned");
  Planned planned = std::move(planned_.front());
  planned_.pop_front();
  std::vector<std::int32_t> tokens;
  run(planned, tokens);
  const std::vector<float> logprobs(tokens.size());
  const std::vector<std::int32_t> top_tokens(tokens.size() * ops::kTopLogprobsMax);
  const std::vector<float> top_logprobs(top_tokens.size());
  StepResults results{.tokens = tokens, .logprobs = logprobs, .top_tokens = top_tokens, .top_logprobs = top_logprobs};
  scheduler_->commit(planned.step, results, now);
  scheduler_->check_invariant();
  take_events();
}

void Stepper::run(Planned& planned, std::vector<std::int32_t>& tokens) {
  const BatchLayout& layout = planned.batch->layout();
  std::vector<std::byte> slab(planned.batch->slab(), planned.batch->slab() + layout.bytes);
  const BatchView view = StepBatch::view(layout, batch_limits_, slab.data(), Device{});
  for (int row = 0; row < layout.rows; ++row) {
    const std::int32_t source = view.sources.as<std::int32_t>()[row];
    if (source >= 0) view.batch.tokens.as<std::int32_t>()[row] = last_tokens_.at(static_cast<std::size_t>(source));
  }
  model_->forward(
      view.batch, *kv_, stream_, *communicator_,
      {.hidden = {}, .logits = layout.logit_rows > 0 ? logits_.rows(0, layout.logit_row_numbers.count) : Tensor()});
  for (int i = 0; i < layout.logit_rows; ++i) {
    const ops::SampleRow& row = view.sampling.rows[i];
    tokens.push_back(sample(logits_.row<float>(i), row, view.sampling));
    // A NaN row leaves a valid id behind, as the real operation may: nothing that follows it is delivered.
    if (row.slot >= 0) last_tokens_.at(static_cast<std::size_t>(row.slot)) = std::max(0, tokens.back());
  }
  rows_run_ += planned.step.rows;
  ++steps_run_;
}

std::int32_t Stepper::sample(const float* logits, const ops::SampleRow& row, const ops::SampleInputs& in) const {
  std::vector<float> z(logits, logits + options_.model.vocabulary);
  for (const float value : z) {
    if (std::isnan(value)) return -1;
  }
  for (std::int32_t i = row.adjustments_begin; i < row.adjustments_end; ++i) {
    const ops::LogitAdjustment& a = in.adjustments[i];
    float& value = z.at(static_cast<std::size_t>(a.token));
    value = (value > 0 ? value / a.repetition : value * a.repetition) + a.add;
  }
  if (row.mask_row >= 0) {
    const auto* bits = in.masks.row<std::int32_t>(row.mask_row);
    for (std::size_t token = 0; token < z.size(); ++token) {
      if ((static_cast<std::uint32_t>(bits[token / 32]) >> (token % 32) & 1) == 0) z[token] = kNever;
    }
  }
  return static_cast<std::int32_t>(std::ranges::max_element(z) - z.begin());
}

void Stepper::take_events() {
  for (const RequestEvent& e : scheduler_->take_events()) {
    const RequestId id = e.request->request.id;
    std::vector<Outcome>& outcomes = outcomes_.at(id);
    Outcome& o = outcomes.at(static_cast<std::size_t>(e.event.choice));
    CHECK(!o.finish, "request {}: an event after the end", id);
    if (e.started) {
      CHECK(cached_.emplace(id, e.request->cached_tokens).second, "request {} started twice", id);
    }
    CHECK(e.event.token < 0 || cached_.contains(id), "request {}: a token before the start", id);
    CHECK(e.event.token >= 0 || e.event.finish, "request {}: an empty event", id);
    if (e.event.token >= 0) o.tokens.push_back(e.event.token);
    o.finish = e.event.finish;
  }
}

bool Stepper::finish(int depth, int steps_max) {
  while (!scheduler_->idle()) {
    if (--steps_max < 0) return false;
    while (steps_in_flight() < depth && plan()) {
    }
    if (steps_in_flight() > 0) commit();
  }
  return true;
}

Outcome expected_outcome(const Request& request, const StepperOptions& options) {
  const DecodingOptions& d = request.decoding;
  const int context_max = options.limits.context_max != 0 ? options.limits.context_max : options.model.positions_max;
  std::vector<std::int32_t> tokens = request.prompt;
  Outcome o;
  const auto seen = [&](std::int32_t token) { return std::ranges::count(tokens, token) > 0; };
  const auto generated = [&](std::int32_t token) { return std::ranges::count(o.tokens, token); };
  while (!o.finish) {
    std::vector<float> z = reference_logits(tokens, options.model);
    if (std::isnan(z[0])) {
      o.finish = FinishReason::kFailed;
      return o;
    }
    for (std::int32_t t = 0; t < options.model.vocabulary; ++t) {
      float& value = z[static_cast<std::size_t>(t)];
      if (seen(t)) value = value > 0 ? value / d.repetition_penalty : value * d.repetition_penalty;
      for (const auto& [token, bias] : d.logit_bias) value += token == t ? bias : 0;
      if (generated(t) > 0) value -= d.presence_penalty + d.frequency_penalty * static_cast<float>(generated(t));
      const bool stops = std::ranges::count(d.stop_tokens, t) > 0 && !d.ignore_stop;
      if (stops && static_cast<int>(o.tokens.size()) < d.min_tokens) value = kNever;
    }
    const auto next = static_cast<std::int32_t>(std::ranges::max_element(z) - z.begin());
    tokens.push_back(next);
    o.tokens.push_back(next);
    if (!d.ignore_stop && std::ranges::count(d.stop_tokens, next) > 0) {
      o.finish = FinishReason::kStop;
    } else if (static_cast<int>(o.tokens.size()) == d.max_tokens || static_cast<int>(tokens.size()) == context_max) {
      o.finish = FinishReason::kLength;
    }
  }
  return o;
}

DecoderFactory draft_decoders(const FakeModelOptions& model, int drafts_max, double quality) {
  return [=] { return std::make_unique<DraftDecoder>(model, drafts_max, quality); };
}

}  // namespace rose::testing
