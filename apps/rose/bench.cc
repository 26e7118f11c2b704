#include "bench.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>

#include "bench_model.h"
#include "bench_ops.h"
#include "bench_ops_cases.h"
#include "bench_options.h"
#include "bench_report.h"

namespace rose {

std::string Layout::name() const { return fmt::format("EP{} DP{} TP{}", ep, dp, tp); }

Layout layout_of(const LoadOptions& options) {
  return {.ep = options.ep == 0 ? options.tp : options.ep, .dp = 1, .tp = options.tp};
}

json::Object model_fields(const BenchRun& run, const char* what) {
  const Layout layout = layout_of(run.options.load);
  const ModelShape& shape = run.model.shape;
  const int rows = run.options.load.rows_max;
  return {{"what", what},
          {"model", run.model.name},
          {"device", run.model.device.name()},
          {"layers", shape.layers},
          {"hidden", shape.hidden},
          {"experts", shape.experts},
          {"routing", run.options.load.routing},
          {"bf16_experts", run.options.load.bf16_experts},
          {"dense_format", run.options.load.dense},
          {"kv_dtype", dtype_name(kv_dtype(run.options.load))},
          {"weight_bytes_in_memory", run.model.weight_bytes},
          {"layout", layout.name()},
          {"gpus", layout.gpus()},
          {"gpu_hour_price", run.options.gpu_hour_price},
          {"rows_max", rows == 0 ? json::Value(nullptr) : json::Value(rows)}};
}

namespace {

struct AllOptions {
  BenchOptions shared;
  PrefillOptions prefill;
  DecodeOptions decode;
  OpsOptions ops;
  PrefillOptions short_prefill{.lengths = {100, 512}};
  DecodeOptions short_decode{.batches = {1, 4}, .contexts = {100}, .steps = 128};
};

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// A batch that waits for a place would be timed as a smaller one. 0 is the engine's own choice, at least 64 sequences
// and 512 rows (load.h).
void make_room(LoadOptions& options, int batch) {
  if (options.sequences_max != 0 || batch > 64) options.sequences_max = std::max(options.sequences_max, batch);
  const int rows = 2 * batch;
  if (options.rows_max == 0 && rows > 512) options.rows_max = 8192;
  if (options.rows_max != 0) options.rows_max = std::max(options.rows_max, rows);
  options.queue_max = std::max(options.queue_max, batch);
}

// Loads the model once and times what is given; nullptr: not that.
void run_model(BenchOptions options, const PrefillOptions* prefill, const DecodeOptions* decode) {
  if (decode != nullptr) {
    const int batch = *std::max_element(decode->batches.begin(), decode->batches.end());
    make_room(options.load, batch);
  }
  BenchReport report(options.json_path);
  const CardState before = report.card_state();
  const LoadedModel model = load(options.load, terminal_progress("loading"));
  std::printf("%s", model.summary.c_str());
  if (model.device.is_cpu()) report.leave_out_card();
  const BenchRun run{.model = model, .options = options, .report = report};
  if (options.load.hash_logits) {
    hash_logits(run, prefill, decode);
  } else {
    if (prefill != nullptr) bench_prefill(run, *prefill);
    if (decode != nullptr) bench_decode(run, *decode);
  }
  std::printf("\nmemory: weights %.1f MiB, peak of the process %.1f MiB; loaded in %.2f s\n",
              static_cast<double>(model.weight_bytes) / (1 << 20), peak_memory_mib(), model.load_s);
  json::Object row = model_fields(run, "memory");
  row["process_peak_mib"] = peak_memory_mib();
  row["load_seconds"] = model.load_s;
  report.add(std::move(row), before);
  model.engine->stop(Clock::now());
}

void add_json(CLI::App& command, std::string& path) {
  command.add_option("--json", path, "also write JSON lines, one for each row, to this file");
}

void add_shared(CLI::App& command, BenchOptions& options) {
  add_load_options(command, options.load);
  command
      .add_option("--routing", options.load.routing,
                  "experts of each row: as the model chooses, in turn, or by a power law of exponent 1.2")
      ->envname("ROSE_ROUTING")
      ->check(CLI::IsMember({"natural", "balanced", "skewed"}))
      ->capture_default_str();
  command
      .add_flag("--hash-logits", options.load.hash_logits,
                "instead of times: a hash of all logits behind each row, each row once, so that two runs can be\n"
                "compared bit by bit")
      ->envname("ROSE_HASH_LOGITS");
  command.add_option("--repeat", options.repeats, "runs of each row; the median is printed, and p10 - p90")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--gpu-hour-price", options.gpu_hour_price, "dollars an hour for one GPU (on the CPU: a rank)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_json(command, options.json_path);
}

void add_lengths(CLI::App& command, PrefillOptions& options) {
  command.add_option("--lengths", options.lengths, "prompt lengths in tokens")
      ->envname("ROSE_LENGTHS")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
}

void add_decode(CLI::App& command, DecodeOptions& options) {
  command.add_option("--batch", options.batches, "sequences that decode at once")
      ->envname("ROSE_BATCH")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--context", options.contexts, "prompt tokens of each sequence")
      ->envname("ROSE_CONTEXT")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--steps", options.steps, "timed steps of a run, behind each prompt")
      ->envname("ROSE_STEPS")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void add_ops(CLI::App& bench, const std::shared_ptr<AllOptions>& all) {
  CLI::App* ops = bench.add_subcommand("ops", "time each operation at gpt-oss's shapes on one GPU, beside its ceiling");
  ops->add_option("--filter", all->ops.filter, "only rows whose operation and shape contain this text");
  ops->add_option("--repeat", all->ops.repeats, "graph replays of each row; fewer, at least 5, where one takes long")
      ->check(CLI::Range(5, 10000))
      ->capture_default_str();
  ops->add_flag("--list", all->ops.list, "only print the rows with their FLOPs and bytes; needs no GPU");
  add_json(*ops, all->shared.json_path);
  ops->callback([all] {
    if (all->ops.list) return print_op_cases(op_cases(all->ops.filter));
    BenchReport report(all->shared.json_path);
    bench_ops(all->ops, report);
  });
}

}  // namespace

void register_bench(CLI::App& app) {
  auto all = std::make_shared<AllOptions>();
  CLI::App* bench = app.add_subcommand("bench", "time a checkpoint, or each operation, on this machine");
  add_shared(*bench, all->shared);
  add_lengths(*bench, all->short_prefill);
  add_decode(*bench, all->short_decode);

  CLI::App* prefill = bench->add_subcommand("prefill", "seconds and dollars from request to first token");
  add_shared(*prefill, all->shared);
  add_lengths(*prefill, all->prefill);
  prefill->callback([all] { run_model(all->shared, &all->prefill, nullptr); });

  CLI::App* decode = bench->add_subcommand("decode", "tokens/s and dollars while many sequences decode");
  add_shared(*decode, all->shared);
  add_decode(*decode, all->decode);
  decode->callback([all] { run_model(all->shared, nullptr, &all->decode); });

  add_ops(*bench, all);
  bench->footer("Without prefill, decode or ops: a short form of the first two, in seconds on a CPU.");
  bench->callback([all, bench] {
    if (bench->get_subcommands().empty()) run_model(all->shared, &all->short_prefill, &all->short_decode);
  });
  for (CLI::App* command : bench->get_subcommands({})) command->get_formatter()->column_width(34);
}

}  // namespace rose
