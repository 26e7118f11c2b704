#include "engine/worker.h"

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"

namespace rose {
namespace {

ModelLimits model_limits(const BatchLimits& batch) {
  return {.rows_max = batch.rows_max, .logit_rows_max = batch.logit_rows_max, .sequences_max = batch.sequences_max};
}

SamplerLimits sampler_limits(const BatchLimits& batch) {
  return {.slots = batch.sequences_max, .logit_rows_max = batch.logit_rows_max};
}

std::size_t result_bytes(const BatchLimits& batch) {
  const auto m = static_cast<std::size_t>(batch.logit_rows_max);
  return 2 * Arena::aligned(4 * m) + 2 * Arena::aligned(4 * m * ops::kTopLogprobsMax);
}

}  // namespace

std::size_t Worker::bytes(const Model& model, const WorkerLimits& limits) {
  const auto m = static_cast<std::size_t>(limits.batch.logit_rows_max);
  const ModelShape& shape = model.shape();
  return KvCache::bytes(model.kv_sets(), limits.pages, limits.kv) +
         Arena::aligned(model.scratch_bytes(model_limits(limits.batch))) +
         Sampler::bytes(sampler_limits(limits.batch)) +
         Arena::aligned(m * static_cast<std::size_t>(shape.hidden) * dtype_bytes(limits.activations)) +
         Arena::aligned(m * static_cast<std::size_t>(shape.vocabulary) * sizeof(float)) +
         kStepsInFlightMax * Arena::aligned(StepBatch::bytes(limits.batch));
}

Worker::Worker(std::unique_ptr<Model> model, std::unique_ptr<Communicator> communicator, Stream stream,
               const WorkerLimits& limits)
    : limits_(limits), model_(std::move(model)), communicator_(std::move(communicator)), stream_(std::move(stream)) {
  const BatchLimits& batch = limits_.batch;
  arena_ = std::make_unique<Arena>(stream_.device(), bytes(*model_, limits_), "engine");
  // A GPU's memory comes with what lay in it, and 0 * NaN is NaN; the CPU's is zero pages that cost nothing untouched.
  if (!stream_.device().is_cpu()) arena_->zero();
  host_ = Arena::host_of(stream_.device(), kStepsInFlightMax * result_bytes(batch), "results");
  kv_ = std::make_unique<KvCache>(model_->kv_sets(), limits_.pages, limits_.kv, *arena_);
  model_->take_scratch(model_limits(batch), *arena_);
  sampler_ = std::make_unique<Sampler>(sampler_limits(batch), *arena_);
  hidden_ = arena_->tensor("hidden", limits_.activations, {batch.logit_rows_max, model_->shape().hidden});
  logits_ = arena_->tensor("logits", DType::kF32, {batch.logit_rows_max, model_->shape().vocabulary});
  for (int i = 0; i < kStepsInFlightMax; ++i) {
    slabs_[i] = static_cast<std::byte*>(arena_->take("step", StepBatch::bytes(batch)));
    results_[i].tokens = host_->tensor("tokens", DType::kI32, {batch.logit_rows_max});
    results_[i].logprobs = host_->tensor("logprobs", DType::kF32, {batch.logit_rows_max});
    results_[i].top_tokens = host_->tensor("top_tokens", DType::kI32, {batch.logit_rows_max, ops::kTopLogprobsMax});
    results_[i].top_logprobs = host_->tensor("top_logprobs", DType::kF32, {batch.logit_rows_max, ops::kTopLogprobsMax});
  }
  if (!stream_.device().is_cpu()) record_graphs();
  thread_ = std::thread([this] { loop(); });
}

void Worker::record_graphs() {
  for (const int rows : limits_.batch.graph_rows) {
    const BatchLayout layout = StepBatch::graph_layout(limits_.batch, rows);
    const BatchView view = StepBatch::view(layout, limits_.batch, slabs_[0], stream_.device());
    const ModelOutputs outputs{.hidden = hidden_.rows(0, rows), .logits = logits_.rows(0, rows)};
    // Once as it is, for there is no graph of so many rows yet: loads the kernels. The slab is zeros: sequences of no
    // rows.
    forward(layout, view, outputs);
    stream_.synchronize();
    graphs_.emplace(rows, Graph::capture(stream_, [&] { forward(layout, view, outputs); }));
  }
  arena_->zero();  // row 0 was appended to page 0
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::launch(const StepBatch& batch) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(steps_launched_ - steps_collected_ < kStepsInFlightMax, "a third step was launched");
    launched_.push_back(&batch);
    Extent& extent = extents_[steps_launched_ % kStepsInFlightMax];
    extent.rows = batch.layout().rows;
    extent.graph_rows = graphs_.contains(batch.layout().graph_rows) ? batch.layout().graph_rows : 0;
    ++steps_launched_;
  }
  changed_.notify_all();
}

StepResults Worker::collect() {
  CHECK(steps_collected_ < steps_launched_, "no step was launched");
  collecting_ = true;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return steps_run_ > steps_collected_; });
  }
  const Results* r = &results_[steps_collected_ % kStepsInFlightMax];
  r->done.wait();
  ++steps_collected_;  // now, not before the GPU was waited for: until here the watchdog sees the step in flight
  collecting_ = false;
  const auto rows = static_cast<std::size_t>(r->rows);
  logits_hash_ = r->logits_hash;
  StepResults out{.seconds = stream_.device().is_cpu() ? r->seconds : r->done.seconds_since(r->begun)};
  out.tokens = {r->tokens.as<std::int32_t>(), rows};
  out.logprobs = {r->logprobs.as<float>(), rows};
  const std::size_t top = r->wants_logprobs ? rows * ops::kTopLogprobsMax : 0;
  out.top_tokens = {r->top_tokens.as<std::int32_t>(), top};
  out.top_logprobs = {r->top_logprobs.as<float>(), top};
  return out;
}

RankProgress Worker::progress() const {
  RankProgress out;
  out.steps_ended = steps_collected_;  // before those launched, which are never fewer
  out.in_flight = steps_launched_ > out.steps_ended;
  out.on_gpu = !stream_.device().is_cpu();
  out.has_run = steps_run_ > out.steps_ended;
  out.collecting = collecting_;
  const Extent& extent = extents_[out.steps_ended % kStepsInFlightMax];
  out.rows = extent.rows;
  out.graph_rows = extent.graph_rows;
  if (const ThreadPlace* place = place_) out.place = place->get();
  return out;
}

void Worker::loop() {
  place_ = &current_place();
  for (;;) {
    const StepBatch* batch = nullptr;
    std::size_t at = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !launched_.empty(); });
      if (launched_.empty()) return;
      batch = launched_.front();
      launched_.pop_front();
      at = steps_run_ % kStepsInFlightMax;
    }
    current_place().set({.rows = batch->layout().rows, .operation = "copying of the batch"});
    run(*batch, slabs_[at], results_[at]);
    current_place().set({});
    {
      const std::lock_guard lock(mutex_);
      ++steps_run_;
    }
    changed_.notify_all();
  }
}

void Worker::run(const StepBatch& batch, std::byte* slab, Results& results) {
  const Time begin = Clock::now();
  results.begun = stream_.record();
  const BatchLayout& layout = batch.layout();
  // A GPU's copies and kernels run in order, and its graphs read where they were recorded: one slab does there.
  if (!stream_.device().is_cpu()) slab = slabs_[0];
  copy_async(stream_, slab, batch.slab(), layout.bytes);
  BatchView view = StepBatch::view(layout, limits_.batch, slab, stream_.device());
  const std::int64_t m = layout.logit_rows;
  ModelOutputs outputs;  // empty in the middle of a prompt
  if (m > 0) {
    const std::int64_t rows = layout.logit_row_numbers.count;
    outputs = {.hidden = hidden_.rows(0, rows), .logits = logits_.rows(0, rows)};
  }
  forward(layout, view, outputs);
  if (m > 0) {
    current_place().enter("sampling");
    view.sampling.logits = outputs.logits.rows(0, m);
    if (limits_.hash_logits) hash_logits(view.sampling.logits);
    sampler_->sample(stream_, view.sampling);
    const ops::SampleOutputs& sampled = sampler_->outputs();
    const auto rows = static_cast<std::size_t>(m);
    copy_async(stream_, results.tokens.raw(), sampled.tokens.raw(), 4 * rows);
    if (layout.wants_logprobs) {
      copy_async(stream_, results.logprobs.raw(), sampled.logprobs.raw(), 4 * rows);
      const std::size_t top = 4 * rows * ops::kTopLogprobsMax;
      copy_async(stream_, results.top_tokens.raw(), sampled.top_tokens.raw(), top);
      copy_async(stream_, results.top_logprobs.raw(), sampled.top_logprobs.raw(), top);
    }
  }
  results.rows = layout.logit_rows;
  results.logits_hash = hash_;
  results.wants_logprobs = layout.wants_logprobs;
  results.done = stream_.record();
  results.seconds = seconds_between(begin, Clock::now());
}

// Before the sampling, which may write to the logits.
void Worker::hash_logits(const Tensor& logits) {
  std::vector<std::byte> host(logits.bytes());
  copy_async(stream_, host.data(), logits.raw(), host.size());
  stream_.synchronize();
  hash_ = XXH3_64bits_withSeed(host.data(), host.size(), hash_);
}

void Worker::forward(const BatchLayout& layout, const BatchView& view, const ModelOutputs& outputs) {
  const auto graph = graphs_.find(layout.graph_rows);
  if (graph != graphs_.end()) {
    current_place().enter("launch of the graph");
    return graph->second.launch(stream_);
  }
  current_place().enter("model");
  sampler_->resolve(stream_, view.sources, view.batch.tokens);
  model_->forward(view.batch, *kv_, stream_, *communicator_, outputs);
}

}  // namespace rose
