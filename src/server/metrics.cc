#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>

namespace rose {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = prometheus::Labels;

// vLLM's, with finer ones below: its lowest are longer than a token takes here.
const Buckets kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kPerToken = {.001, .002, .003, .004, .005, .0075, .01, .025, .05, .075, .1, .15, .2,
                           .3,   .4,   .5,   .75,  1,    2.5,   5,   7.5,  10,  20,   40, 80};
const Buckets kRequest = {.005, .01, .025, .05, .1, .2, .3, .5,  .8,  1,   1.5, 2,    2.5, 5,
                          10,   15,  20,   30,  40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const Buckets kChoices = {1, 2, 5, 10, 20};
const Buckets kHttp = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300};

prometheus::MetricFamily family(std::string name, std::string help, prometheus::MetricType type) {
  return {std::move(name), std::move(help), type, {}};
}

void put(prometheus::MetricFamily& family, const Labels& labels, double value) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

std::string_view method_label(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    if (method == known) return known;
  }
  return "other";
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double open_files() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

constexpr std::array kEnds = {"stop", "length", "abort", "error"};

}  // namespace

struct Metrics::Families {
  explicit Families(std::string model) : labels{{"model_name", std::move(model)}, {"engine", "0"}} {}

  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
  prometheus::Counter& counter(const char* name, const char* help, Labels more = {}) {
    Labels all = labels;
    all.insert(more.begin(), more.end());
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(all);
  }

  Labels labels;
  std::string version;
  double started = static_cast<double>(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  mutable prometheus::Registry registry;

  Histogram& first_token = histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", kFirstToken);
  Histogram& inter_token = histogram("vllm:inter_token_latency_seconds", "Between tokens of a choice.", kPerToken);
  Histogram& per_output = histogram("vllm:request_time_per_output_token_seconds",
                                    "Mean time per token after the first, by request.", kPerToken);
  Histogram& per_output_old = histogram("vllm:time_per_output_token_seconds", "Old name of inter_token.", kPerToken);
  Histogram& total = histogram("vllm:e2e_request_latency_seconds", "Arrival to end.", kRequest);
  Histogram& queue = histogram("vllm:request_queue_time_seconds", "Waiting to be scheduled.", kRequest);
  Histogram& inference = histogram("vllm:request_inference_time_seconds", "Scheduled to end.", kRequest);
  Histogram& prefill = histogram("vllm:request_prefill_time_seconds", "Scheduled to first token.", kRequest);
  Histogram& decode = histogram("vllm:request_decode_time_seconds", "First token to end.", kRequest);
  Histogram& prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", kTokens);
  Histogram& generated = histogram("vllm:request_generation_tokens", "Generated tokens of a request.", kTokens);
  Histogram& longest =
      histogram("vllm:request_max_num_generation_tokens", "Generated tokens of the longest choice.", kTokens);
  Histogram& asked = histogram("vllm:request_params_max_tokens", "max_tokens of a request.", kTokens);
  Histogram& computed =
      histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens not served from the prefix cache.", kTokens);
  Histogram& choices = histogram("vllm:request_params_n", "n of a request.", kChoices);
  std::array<prometheus::Counter*, 4> ends = {
      &counter("vllm:request_success_total", "Requests by how they ended.", {{"finished_reason", kEnds[0]}}),
      &counter("vllm:request_success_total", "Requests by how they ended.", {{"finished_reason", kEnds[1]}}),
      &counter("vllm:request_success_total", "Requests by how they ended.", {{"finished_reason", kEnds[2]}}),
      &counter("vllm:request_success_total", "Requests by how they ended.", {{"finished_reason", kEnds[3]}})};
  prometheus::Counter& refused =
      counter("vllm:admission_rejections_total", "Requests refused because the queue was full.");
  prometheus::Counter& left = counter("rose_client_disconnects_total", "Clients that left before their answer ended.");
  prometheus::Counter& aborted = counter("rose_aborted_tokens_total", "Tokens generated for clients that left.");
  prometheus::Family<prometheus::Counter>& http_requests = prometheus::BuildCounter()
                                                               .Name("http_requests_total")
                                                               .Help("HTTP requests by route, method and status.")
                                                               .Register(registry);
  prometheus::Family<Histogram>& http_seconds = prometheus::BuildHistogram()
                                                    .Name("http_request_duration_seconds")
                                                    .Help("HTTP requests, head complete to answer complete.")
                                                    .Register(registry);
};

Metrics::Metrics(std::string model_name, std::string version)
    : families_(std::make_unique<Families>(std::move(model_name))) {
  families_->version = std::move(version);
}
Metrics::~Metrics() = default;

void Metrics::first_token(double seconds) { families_->first_token.Observe(seconds); }

void Metrics::next_tokens(int tokens, double seconds) {
  const double each = seconds / std::max(1, tokens);
  for (int i = 0; i < tokens; ++i) {
    families_->inter_token.Observe(each);
    families_->per_output_old.Observe(each);
  }
}

void Metrics::finished(const RequestSummary& request) {
  Families& f = *families_;
  f.ends[static_cast<std::size_t>(request.end)]->Increment();
  f.prompt.Observe(request.prompt_tokens);
  f.generated.Observe(request.tokens);
  f.longest.Observe(request.tokens_longest);
  f.asked.Observe(request.max_tokens);
  f.computed.Observe(request.prompt_tokens - request.cached_tokens);
  f.choices.Observe(request.n);
  f.total.Observe(request.total_s);
  if (request.first_token_s < 0) return;
  const double decode_s = std::max(0.0, request.total_s - request.first_token_s);
  f.queue.Observe(request.queue_s);
  f.prefill.Observe(request.prefill_s);
  f.inference.Observe(request.prefill_s + decode_s);
  f.decode.Observe(decode_s);
  if (request.tokens_longest > 1) f.per_output.Observe(decode_s / (request.tokens_longest - 1));
}

void Metrics::client_left(int tokens) {
  families_->left.Increment();
  families_->aborted.Increment(tokens);
}

void Metrics::refused() { families_->refused.Increment(); }

void Metrics::exchange(const http::Exchange& exchange) {
  const std::string route(exchange.route.empty() ? "none" : exchange.route);
  const std::string method(method_label(exchange.method));
  families_->http_requests
      .Add({{"handler", route}, {"method", method}, {"status", std::to_string(exchange.status / 100) + "xx"}})
      .Increment();
  families_->http_seconds.Add({{"handler", route}, {"method", method}}, kHttp).Observe(exchange.seconds);
}

namespace {

void add_engine_families(const EngineStats& stats, const EngineLimits& limits, const Labels& labels,
                         std::vector<prometheus::MetricFamily>& out) {
  const auto gauge = [&](const char* name, const char* help, double value, const Labels& of) {
    out.push_back(family(name, help, prometheus::MetricType::Gauge));
    put(out.back(), of, value);
  };
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    out.push_back(family(name, help, prometheus::MetricType::Counter));
    put(out.back(), labels, static_cast<double>(value));
  };
  double usage = 0;
  for (std::size_t i = 0; i < stats.pages_total.size(); ++i) {
    if (stats.pages_total[i] > 0)
      usage = std::max(usage, static_cast<double>(stats.pages_live[i]) / stats.pages_total[i]);
  }
  gauge("vllm:num_requests_running", "Requests in the running batch.", stats.requests_running, labels);
  gauge("vllm:num_requests_waiting", "Requests waiting to be scheduled.", stats.requests_waiting, labels);
  gauge("vllm:kv_cache_usage_perc", "KV pages in use, 0 to 1, of the fullest set.", usage, labels);
  gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.", usage, labels);
  counter("vllm:num_preemptions_total", "Sequences put back into the queue.", stats.preemptions);
  counter("vllm:prompt_tokens_total", "Prompt tokens.", stats.prompt_tokens);
  counter("vllm:prompt_tokens_cached_total", "Prompt tokens served from the prefix cache.", stats.prompt_tokens_cached);
  counter("vllm:generation_tokens_total", "Generated tokens.", stats.generated_tokens);
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prompt_tokens);
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found there.", stats.prompt_tokens_cached);
  counter("vllm:gpu_prefix_cache_queries_total", "Old name of vllm:prefix_cache_queries.", stats.prompt_tokens);
  counter("vllm:gpu_prefix_cache_hits_total", "Old name of vllm:prefix_cache_hits.", stats.prompt_tokens_cached);
  counter("rose_steps_total", "Passes of the model.", stats.steps);
  gauge("rose_step_age_seconds", "Since the engine's loop last turned.", stats.heartbeat_age_s, {});
  Labels config = labels;
  config["num_gpu_blocks"] = std::to_string(stats.pages_total.empty() ? 0 : stats.pages_total.front());
  config["context_max"] = std::to_string(limits.context_max);
  config["enable_prefix_caching"] = "True";
  gauge("vllm:cache_config_info", "The KV cache, in labels.", 1, config);
}

}  // namespace

std::string Metrics::text(const EngineStats* engine, const EngineLimits* limits) const {
  const Families& f = *families_;
  std::vector<prometheus::MetricFamily> out = f.registry.Collect();
  if (engine != nullptr && limits != nullptr) add_engine_families(*engine, *limits, f.labels, out);
  const auto gauge = [&](const char* name, const char* help, double value, const Labels& labels) {
    out.push_back(family(name, help, prometheus::MetricType::Gauge));
    put(out.back(), labels, value);
  };
  gauge("rose_build_info", "The build, in labels.", 1, {{"version", f.version}});
  gauge("rose_model_ready", "1 once the model has loaded.", engine != nullptr ? 1 : 0, f.labels);
  gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes(), {});
  gauge("process_open_fds", "Open file descriptors.", open_files(), {});
  gauge("process_start_time_seconds", "Start, unix time.", f.started, {});
  out.push_back(family("process_cpu_seconds_total", "CPU time.", prometheus::MetricType::Counter));
  put(out.back(), {}, cpu_seconds());
  return prometheus::TextSerializer().Serialize(out);
}

}  // namespace rose
