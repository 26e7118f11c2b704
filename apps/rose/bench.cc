#include "bench.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "ask.h"
#include "base/random.h"
#include "json/json.h"
#include "load.h"

namespace rose {
namespace {

struct BenchOptions {
  LoadOptions load;
  std::vector<int> prompt_tokens = {100, 512};
  std::vector<int> batches = {1, 4};
  int decode_tokens = 256;
  int repeats = 5;
  std::string json_path;
};

class Bench {
 public:
  Bench(const LoadedModel& model, const BenchOptions& options) : model_(model), options_(options) {}

  // Seconds from submit to the first token; the salt keeps every run cold.
  double prefill(int tokens) {
    const auto sink = std::make_shared<EventQueue>();
    const Time begin = Clock::now();
    submit(tokens, 1, sink);
    double first = 0;
    wait_all({sink}, [&] { first = seconds_between(begin, Clock::now()); });
    return first;
  }

  // Seconds a step while `batch` sequences decode behind prompts of `tokens`.
  double decode(int tokens, int batch) {
    std::vector<std::shared_ptr<EventQueue>> sinks;
    for (int i = 0; i < batch; ++i) {
      sinks.push_back(std::make_shared<EventQueue>());
      submit(tokens, options_.decode_tokens, sinks.back());
    }
    Time all_started{};
    int waiting = batch, counted = 0;
    wait_all(
        sinks,
        [&] {
          if (waiting > 0 && --waiting == 0) all_started = Clock::now();
        },
        [&] { counted += waiting == 0 ? 1 : 0; });
    return seconds_between(all_started, Clock::now()) * batch / std::max(counted, 1);
  }

 private:
  void submit(int tokens, int max_tokens, const std::shared_ptr<EventQueue>& sink) {
    Request request{.id = ++id_, .sink = sink};
    for (int i = 0; i < tokens; ++i) {
      request.prompt.push_back(static_cast<std::int32_t>(random_bits(id_, static_cast<std::uint64_t>(i)) %
                                                         static_cast<std::uint64_t>(model_.shape.vocabulary)));
    }
    request.decoding.max_tokens = max_tokens;
    request.decoding.ignore_stop = true;
    request.decoding.seed = id_;
    request.cache_salt = fmt::format("bench {}", id_);
    const Result<Ok> accepted = model_.engine->submit(std::move(request));
    if (!accepted) throw StartError(accepted.error().message, kExitUsage);
  }

  // on_first at each sink's first token, on_token at every token that comes in a later delivery.
  static void wait_all(
      const std::vector<std::shared_ptr<EventQueue>>& sinks, const std::function<void()>& on_first,
      const std::function<void()>& on_token = [] {}) {
    std::vector<bool> started(sinks.size(), false), done(sinks.size(), false);
    while (std::find(done.begin(), done.end(), false) != done.end()) {
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        if (done[i]) continue;
        for (const TokenEvent& event : sinks[i]->take(0.0002)) {
          if (event.token >= 0) started[i] ? on_token() : on_first();
          started[i] = true;
          if (event.finish == FinishReason::kFailed) throw std::runtime_error(event.error);
          if (event.finish) done[i] = true;
        }
      }
    }
  }

  const LoadedModel& model_;
  const BenchOptions& options_;
  std::uint64_t id_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<double> repeated(int repeats, const std::function<double()>& measure) {
  measure();  // warm: pages touched, threads awake
  std::vector<double> values;
  for (int i = 0; i < repeats; ++i) values.push_back(measure());
  return values;
}

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Expected share of the experts that a step of `rows` rows touches under uniform routing.
double experts_touched(const ModelShape& shape, int rows) {
  if (shape.experts == 0) return 0;
  return 1 - std::pow(1 - static_cast<double>(shape.experts_per_token) / shape.experts, rows);
}

int run_bench(BenchOptions options) {
  const LoadedModel model = load(options.load, terminal_progress("loading"));
  std::printf("%s", model.summary.c_str());
  Bench bench(model, options);
  json::Array rows;
  const auto record = [&](json::Object row) { rows.push_back(std::move(row)); };

  std::printf("\n%-8s %14s %14s %14s\n", "prefill", "prompt tokens", "first token", "tokens/s");
  for (const int tokens : options.prompt_tokens) {
    const double s = median(repeated(options.repeats, [&] { return bench.prefill(tokens); }));
    std::printf("%-8s %14d %11.1f ms %14.0f\n", "", tokens, s * 1e3, tokens / s);
    record({{"what", "prefill"}, {"prompt_tokens", tokens}, {"seconds", s}, {"tokens_per_s", tokens / s}});
  }

  const int context = options.prompt_tokens.front();
  std::printf("\n%-8s %14s %14s %14s %14s\n", "decode", "sequences", "step", "tokens/s", "weights GB/s");
  for (const int batch : options.batches) {
    const double s = median(repeated(options.repeats, [&] { return bench.decode(context, batch); }));
    const double read = model.dense_bytes + model.expert_bytes * experts_touched(model.shape, batch);
    std::printf("%-8s %14d %11.3f ms %14.0f %14.2f\n", "", batch, s * 1e3, batch / s, read / s * 1e-9);
    record({{"what", "decode"},
            {"sequences", batch},
            {"context", context},
            {"step_seconds", s},
            {"tokens_per_s", batch / s},
            {"weight_bytes_per_s", read / s}});
  }
  std::printf("\nmemory: weights %.1f MiB, peak of the process %.1f MiB; loaded in %.2f s\n",
              static_cast<double>(model.weight_bytes) / (1 << 20), peak_memory_mib(), model.load_s);
  record({{"what", "memory"},
          {"weight_bytes", model.weight_bytes},
          {"peak_mib", peak_memory_mib()},
          {"load_s", model.load_s}});
  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    for (const auto& row : rows) file << json::serialize(row) << "\n";
    if (!file) throw StartError(fmt::format("cannot write {}", options.json_path), kExitUsage);
  }
  model.engine->stop(Clock::now());
  return 0;
}

}  // namespace

void register_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "time prefill and decode of a checkpoint on this machine");
  add_load_options(*command, options->load);
  command->add_option("--prompt-tokens", options->prompt_tokens, "prompt lengths; the first is also decode's context")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", options->batches, "sequences decoding at once")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--decode-tokens", options->decode_tokens, "tokens each sequence generates")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", options->repeats, "runs each; the median is printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "also write JSON lines to this file");
  command->callback([options] { run_bench(*options); });
}

}  // namespace rose
