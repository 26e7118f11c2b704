#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "base/log.h"
#include "engine/batch.h"
#include "engine/request_check.h"
#include "engine/scheduler.h"
#include "engine/watchdog.h"
#include "engine/worker.h"

namespace rose {
namespace {

constexpr auto kIdleTurn = std::chrono::milliseconds(500);  // so that an idle loop still shows a heartbeat

using Envelope = std::variant<Request, RequestId>;  // submit, or cancel

struct StepInFlight {
  Step step;
  StepBatch* batch = nullptr;
};

class Engine : public TokenEngine {
 public:
  Engine(std::vector<std::unique_ptr<Worker>> workers, const SchedulerLimits& limits, const BatchLimits& batch,
         const EngineOptions& options);
  ~Engine() override { stop(Clock::now()); }

  Result<Ok> submit(Request request) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  EngineLimits limits() const override { return limits_; }
  void stop(Time deadline) override;

 private:
  std::unique_ptr<Watchdog> make_watchdog(const EngineOptions& options) const;
  void loop();
  bool receive();
  void launch_steps();
  void commit_oldest();
  void deliver();
  void publish_stats();

  const EngineLimits limits_;
  const std::size_t depth_;  // steps in flight
  std::vector<std::unique_ptr<Worker>> workers_;

  // Of the loop thread alone.
  Scheduler scheduler_;
  std::unique_ptr<Arena> host_;
  std::vector<std::unique_ptr<StepBatch>> batches_;  // of steps in flight, taken in turn
  std::deque<StepInFlight> in_flight_;
  std::uint64_t steps_ = 0;
  double step_seconds_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Envelope> inbox_;
  std::unordered_set<RequestId> live_;
  int requests_waiting_ = 0;  // in the inbox or the scheduler
  std::optional<Time> stop_at_;
  EngineStats stats_;
  std::atomic<Time> heartbeat_;

  std::mutex stop_mutex_;
  std::unique_ptr<Watchdog> watchdog_;  // after the workers it looks at, so that it ends before them
  std::thread thread_;
};

Engine::Engine(std::vector<std::unique_ptr<Worker>> workers, const SchedulerLimits& limits, const BatchLimits& batch,
               const EngineOptions& options)
    : limits_{.context_max = limits.context_max,
              .vocabulary = batch.vocabulary,
              .sequences_max = limits.sequences_max,
              .requests_waiting_max = options.requests_waiting_max},
      depth_(options.overlap ? Worker::kStepsInFlightMax : 1),
      workers_(std::move(workers)),
      scheduler_(limits, options.decoders),
      host_(Arena::host_of(workers_[0]->device(), depth_ * Arena::aligned(StepBatch::bytes(batch)), "steps")),
      heartbeat_(Clock::now()) {
  for (std::size_t i = 0; i < depth_; ++i) batches_.push_back(std::make_unique<StepBatch>(batch, *host_));
  publish_stats();
  if (options.watchdog_s > 0) watchdog_ = make_watchdog(options);
  thread_ = std::thread([this] { loop(); });
}

std::unique_ptr<Watchdog> Engine::make_watchdog(const EngineOptions& options) const {
  const auto look = [this] {
    std::vector<RankProgress> ranks;
    for (const auto& worker : workers_) ranks.push_back(worker->progress());
    return ranks;
  };
  return std::make_unique<Watchdog>(options.watchdog_s, look, options.on_stuck ? options.on_stuck : end_stuck_process);
}

Result<Ok> Engine::submit(Request request) {
  if (const auto checked = check_request(request, limits_); !checked) return checked.error();
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) return RequestError{.status = 503, .message = "the server is stopping", .code = "stopping"};
    if (requests_waiting_ >= limits_.requests_waiting_max) {
      return RequestError{.status = 429,
                          .message = fmt::format("{} requests are waiting; try again later", requests_waiting_),
                          .code = "queue_full"};
    }
    if (!live_.insert(request.id).second) {
      return RequestError{.status = 400, .message = fmt::format("request id {} is in use", request.id)};
    }
    ++requests_waiting_;
    inbox_.emplace_back(std::move(request));
  }
  arrived_.notify_one();
  return Ok{};
}

void Engine::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (!live_.contains(id)) return;
    inbox_.emplace_back(id);
  }
  arrived_.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.requests_waiting = requests_waiting_;
  stats.heartbeat_age_s = std::max(0.0, seconds_between(heartbeat_.load(), Clock::now()));
  return stats;
}

void Engine::stop(Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    stop_at_ = std::min(stop_at_.value_or(deadline), deadline);
  }
  arrived_.notify_one();
  const std::lock_guard lock(stop_mutex_);  // several callers: all return when the loop has ended
  if (thread_.joinable()) thread_.join();
}

void Engine::loop() {
  while (receive()) {
    launch_steps();
    publish_stats();  // who runs and who waits, before a step that may take long
    if (!in_flight_.empty()) commit_oldest();
    deliver();
    publish_stats();
  }
}

// Takes what has arrived; waits for something where there is nothing else to do. False: the loop ends.
bool Engine::receive() {
  std::deque<Envelope> arrived;
  bool stopping = false, give_up = false;
  {
    std::unique_lock lock(mutex_);
    heartbeat_ = Clock::now();
    while (scheduler_.idle() && inbox_.empty() && !stop_at_) {
      arrived_.wait_for(lock, kIdleTurn);
      heartbeat_ = Clock::now();
    }
    arrived.swap(inbox_);
    stopping = stop_at_.has_value();
    give_up = stopping && *stop_at_ <= Clock::now();
  }
  for (Envelope& envelope : arrived) {
    if (auto* request = std::get_if<Request>(&envelope)) {
      scheduler_.add(std::move(*request), Clock::now());
    } else {
      scheduler_.cancel(std::get<RequestId>(envelope));
    }
  }
  if (give_up) scheduler_.cancel_all();
  if (!stopping || !scheduler_.idle()) return true;
  deliver();
  publish_stats();
  return false;
}

void Engine::launch_steps() {
  while (in_flight_.size() < depth_) {
    Step step = scheduler_.next(Clock::now());
    if (step.empty()) return;
    StepBatch* batch = batches_[step.number % depth_].get();
    batch->fill(step);
    for (const auto& worker : workers_) worker->launch(*batch);
    in_flight_.push_back({std::move(step), batch});
  }
}

void Engine::commit_oldest() {
  const StepResults results = workers_[0]->collect();
  for (std::size_t rank = 1; rank < workers_.size(); ++rank) {
    // Ranks that draw different tokens hold different keys and values from here on: nothing later would be right.
    const StepResults other = workers_[rank]->collect();
    CHECK(std::ranges::equal(results.tokens, other.tokens), "rank {} drew other tokens than rank 0", rank);
  }
  scheduler_.commit(in_flight_.front().step, results, Clock::now());
  in_flight_.pop_front();
  ++steps_;
  step_seconds_ += results.seconds;
#ifndef NDEBUG
  scheduler_.check_invariant();
#endif
}

// Each request hears of its tokens once a turn, in order.
void Engine::deliver() {
  std::vector<RequestEvent> events = scheduler_.take_events();
  struct Mail {
    std::shared_ptr<ActiveRequest> request;
    std::optional<RequestTimes> started;
    std::vector<TokenEvent> events;
  };
  std::vector<Mail> mails;
  std::unordered_map<const ActiveRequest*, std::size_t> index;
  for (RequestEvent& e : events) {
    const auto [found, added] = index.emplace(e.request.get(), mails.size());
    if (added) mails.push_back({.request = e.request, .started = {}, .events = {}});
    Mail& mail = mails[found->second];
    if (e.started) mail.started = e.started;
    mail.events.push_back(std::move(e.event));
  }
  for (const Mail& mail : mails) {
    const Request& request = mail.request->request;
    if (mail.request->choices_left == 0) {
      const std::lock_guard lock(mutex_);
      live_.erase(request.id);  // first, so that whoever sees the end may use the id again
    }
    if (mail.started) request.sink->started(mail.request->cached_tokens, *mail.started);
    request.sink->deliver(mail.events);
  }
}

void Engine::publish_stats() {
  const SchedulerCounters& counters = scheduler_.counters();
  EngineStats stats;
  stats.requests_running = scheduler_.requests_running();
  for (int set = 0; set < scheduler_.tables().sets(); ++set) {
    const PagePool& pool = scheduler_.tables().pool(set);
    stats.pages_total.push_back(pool.total());
    stats.pages_live.push_back(pool.live() + pool.fenced());
    stats.pages_cached.push_back(pool.cached());
  }
  stats.steps = steps_;
  stats.prompt_tokens = counters.prompt_tokens;
  stats.prompt_tokens_cached = counters.prompt_tokens_cached;
  stats.generated_tokens = counters.generated_tokens;
  stats.preemptions = counters.preemptions;
  std::ranges::copy(counters.requests_finished, stats.requests_finished);
  stats.step_seconds = step_seconds_;
  stats.logits_hash = workers_[0]->logits_hash();
  const int waiting = scheduler_.requests_waiting();
  const std::lock_guard lock(mutex_);
  const auto submitted = std::ranges::count_if(inbox_, [](const Envelope& e) { return e.index() == 0; });
  requests_waiting_ = waiting + static_cast<int>(submitted);
  stats_ = std::move(stats);
}

// Numbers of sequences that decoding steps are recorded for: close together where a row more costs most.
std::vector<int> graph_rows(int most) {
  std::vector<int> rows;
  for (int r = 1; r < most; r += r < 8 ? 1 : r < 16 ? 2 : r < 32 ? 4 : r < 64 ? 8 : r < 256 ? 16 : 64)
    rows.push_back(r);
  rows.push_back(most);
  return rows;
}

BatchLimits batch_limits(const Model& model, const EngineOptions& options, const KvPlan& kv) {
  const int drafts_max = options.decoders ? options.decoders()->drafts_max() : 0;
  BatchLimits limits{.rows_max = options.rows_max};
  // A row of logits is 0.8 MB of float: one a sequence, and drafts as far as they stay within 256.
  limits.logit_rows_max = std::min(
      options.rows_max, std::max(options.sequences_max, std::min(256, options.sequences_max * (1 + drafts_max))));
  limits.sequences_max = options.sequences_max;
  limits.vocabulary = model.shape().vocabulary;
  limits.adjustments_max = std::max(limits.vocabulary, 1 << 18);
  limits.page_size = options.page_size;
  const int context_pages = (kv.context_max + options.page_size - 1) / options.page_size;
  for (const KvSetSpec& set : model.kv_sets()) {
    // A windowed table holds one page more while its oldest one is given back.
    const int pages =
        set.window == 0
            ? context_pages
            : std::min(context_pages, 1 + windowed_pages_max(set.window, options.rows_max, options.page_size));
    limits.sets.push_back({.window = set.window, .pages_max = pages});
  }
  return limits;
}

// What the activations leave of `free` for keys and values: they are the larger, the longer the context.
std::size_t bytes_left(const Model& model, WorkerLimits limits, const EngineOptions& options, std::size_t free) {
  const KvPlan least{.context_max = options.context_max != 0 ? options.context_max : model.shape().positions_max};
  limits.pages.assign(model.kv_sets().size(), 1);
  limits.batch = batch_limits(model, options, least);
  const std::size_t activations = Worker::bytes(model, limits);
  return activations < free ? free - activations : 0;
}

void log_memory(const Model& model, const WorkerLimits& limits, const KvPlan& kv, const EngineOptions& options,
                std::size_t ranks) {
  constexpr double kMiB = 1 << 20;
  const std::size_t rest = Worker::bytes(model, limits) - kv.bytes;
  spdlog::info("memory of a rank ({} of them), MiB:", ranks);
  spdlog::info("  weights       {:10.1f}", static_cast<double>(model.weight_bytes()) / kMiB);
  const std::vector<KvSetSpec> sets = model.kv_sets();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::size_t bytes = static_cast<std::size_t>(kv.pages[i]) * KvCache::page_bytes(sets[i], limits.kv);
    const std::string what = sets[i].window == 0 ? "all positions" : fmt::format("window {}", sets[i].window);
    spdlog::info("  KV set {}      {:10.1f}  {} layers, {}: {} pages of {} tokens in {}", i,
                 static_cast<double>(bytes) / kMiB, sets[i].layers.size(), what, kv.pages[i], options.page_size,
                 dtype_name(limits.kv.dtype));
  }
  spdlog::info("  activations   {:10.1f}  {} rows a step, {} of logits", static_cast<double>(rest) / kMiB,
               limits.batch.rows_max, limits.batch.logit_rows_max);
  spdlog::info("  context {} tokens, {} sequences at once", kv.context_max, options.sequences_max);
}

}  // namespace

std::unique_ptr<TokenEngine> make_engine(std::vector<std::unique_ptr<Model>> ranks,
                                         std::vector<std::unique_ptr<Communicator>> communicators,
                                         const EngineOptions& options, std::vector<Stream> streams) {
  CHECK(!ranks.empty() && ranks.size() == communicators.size(), "{} models, {} communicators", ranks.size(),
        communicators.size());
  if (streams.empty()) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) streams.push_back(Stream::cpu(options.threads));
  }
  CHECK(streams.size() == ranks.size(), "{} streams for {} ranks", streams.size(), ranks.size());

  const Model& model = *ranks[0];
  check_engine_options(options, model.shape().positions_max);
  WorkerLimits limits{.activations = options.activations, .hash_logits = options.hash_logits};
  limits.kv = {.page_size = options.page_size,
               .kv_heads = model.kv_heads_of_rank(),
               .head_dim = model.shape().head_dim,
               .dtype = options.kv_dtype};
  // Ranks on the CPU share one memory.
  const std::size_t sharers = streams[0].device().is_cpu() ? ranks.size() : 1;
  const std::size_t left = bytes_left(model, limits, options, device_memory_free(streams[0].device()) / sharers);
  const KvPlan kv = plan_kv(model.kv_sets(), limits.kv, options, model.shape().positions_max, left);
  limits.pages = kv.pages;
  limits.batch = batch_limits(model, options, kv);
  if (options.graphs && !streams[0].device().is_cpu()) {
    limits.batch.graph_rows = graph_rows(std::min(options.sequences_max, limits.batch.logit_rows_max));
  }
  log_memory(model, limits, kv, options, ranks.size());

  SchedulerLimits scheduler{.rows_max = options.rows_max,
                            .logit_rows_max = limits.batch.logit_rows_max,
                            .sequences_max = options.sequences_max,
                            .context_max = kv.context_max,
                            .page_size = options.page_size,
                            .adjustments_max = limits.batch.adjustments_max,
                            .prefix_cache = options.prefix_cache,
                            .random_seed = options.random_seed,
                            .sets = {}};
  const std::vector<KvSetSpec> sets = model.kv_sets();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    scheduler.sets.push_back({.window = sets[i].window, .pages = kv.pages[i]});
  }
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK(ranks[rank]->kv_heads_of_rank() == limits.kv.kv_heads, "rank {} holds {} KV heads, rank 0 {}", rank,
          ranks[rank]->kv_heads_of_rank(), limits.kv.kv_heads);
    workers.push_back(
        std::make_unique<Worker>(std::move(ranks[rank]), std::move(communicators[rank]), streams[rank], limits));
  }
  return std::make_unique<Engine>(std::move(workers), scheduler, limits.batch, options);
}

}  // namespace rose
