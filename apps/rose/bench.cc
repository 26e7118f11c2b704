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
  command.add_option("--json", path, "also write JSON lines, one for each row with its conditions, to this file");
}

void add_shared(CLI::App& command, BenchOptions& options) {
  add_load_options(command, options.load);
  command
      .add_option("--routing", options.load.routing,
                  "which experts a row of a step takes: those that the model chooses; all equally often; or few\n"
                  "of them much more often (a power law of exponent 1.2)")
      ->envname("ROSE_ROUTING")
      ->check(CLI::IsMember({"natural", "balanced", "skewed"}))
      ->capture_default_str();
  command
      .add_flag("--hash-logits", options.load.hash_logits,
                "instead of times: a hash of all logits behind each row, each row once, so that two runs can be\n"
                "compared bit by bit")
      ->envname("ROSE_HASH_LOGITS");
  command
      .add_option("--repeat", options.repeats,
                  "timed runs of each row, behind one that warms up; printed are their median and p10 - p90")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--gpu-hour-price", options.gpu_hour_price, "dollars an hour for one GPU (on the CPU: a rank)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_json(command, options.json_path);
}

void add_lengths(CLI::App& command, PrefillOptions& options) {
  command
      .add_option("--lengths", options.lengths, "prompt tokens, separated by commas: a row for each of these lengths")
      ->envname("ROSE_LENGTHS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
}

void add_decode(CLI::App& command, DecodeOptions& options) {
  command
      .add_option("--batch", options.batches,
                  "sequences that decode at once, separated by commas: a row for each of these numbers")
      ->envname("ROSE_BATCH")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--context", options.contexts,
                  "prompt tokens of each sequence, separated by commas: every --batch at each of these lengths")
      ->envname("ROSE_CONTEXT")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--steps", options.steps, "timed steps of a run; a step gives every sequence one token")
      ->envname("ROSE_STEPS")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void add_ops(CLI::App& bench, const std::shared_ptr<AllOptions>& all) {
  CLI::App* ops = bench.add_subcommand(
      "ops", "time each operation at gpt-oss's shapes on one GPU, beside what the card can do at most");
  ops->add_option(
         "--filter", all->ops.filters,
         "only rows whose \"operation, shape\" contains this text, such as \"decode full\"; given several times:\n"
         "rows that contain any of the texts")
      ->allow_extra_args(false);
  ops->add_option("--repeat", all->ops.repeats,
                  "timed replays of each row's graph, as far as they fit in 1.5 s, but at least 5; printed are their\n"
                  "median and p10 - p90")
      ->check(CLI::Range(5, 10000))
      ->capture_default_str();
  ops->add_flag("--list", all->ops.list,
                "only print the rows: FLOPs and bytes by formula, best public times; needs no GPU");
  add_json(*ops, all->shared.json_path);
  ops->footer(
      "rose bench ops --list\n"
      "rose bench ops --filter \"attention decode\" --filter \"linear qkv\" --json ops.jsonl\n"
      "\n"
      "fp8 KV: keys and values as --kv-cache-dtype fp8 keeps them. linear ... fp8: weights as --dense fp8, with the\n"
      "rounding of the inputs. experts: MXFP4 weights; fp8 weights: --experts fp8; bf16 activations: --bf16-experts.\n"
      "plan: once a step for all layers of equal window.");
  ops->callback([all] {
    const std::vector<OpCase> cases = op_cases(all->ops.filters);
    if (cases.empty()) {
      throw StartError(
          fmt::format("no row contains {}: rose bench ops --list names them", fmt::join(all->ops.filters, " or ")),
          kExitUsage);
    }
    if (all->ops.list) return print_op_cases(cases);
    BenchReport report(all->shared.json_path);
    bench_ops(cases, all->ops.repeats, report);
  });
}

}  // namespace

void register_bench(CLI::App& app) {
  auto all = std::make_shared<AllOptions>();
  CLI::App* bench = app.add_subcommand("bench", "time a checkpoint, or each operation, on this machine");
  add_shared(*bench, all->shared);
  add_lengths(*bench, all->short_prefill);
  add_decode(*bench, all->short_decode);

  CLI::App* prefill = bench->add_subcommand(
      "prefill",
      "seconds from a request to its first token, and dollars for a million prompt tokens; one request at a time");
  add_shared(*prefill, all->shared);
  add_lengths(*prefill, all->prefill);
  prefill->callback([all] { run_model(all->shared, &all->prefill, nullptr); });

  CLI::App* decode = bench->add_subcommand(
      "decode", "tokens/s, and dollars for a million of them, while several sequences decode at once");
  add_shared(*decode, all->shared);
  add_decode(*decode, all->decode);
  decode->callback([all] { run_model(all->shared, nullptr, &all->decode); });

  add_ops(*bench, all);
  bench->footer(
      "Without prefill, decode or ops: a short form of the first two, in seconds on a CPU. Each of the three has its "
      "own\n"
      "--help.");
  const std::string rest = "\n" + app.get_footer();
  prefill->footer(
      "rose bench prefill --lengths 100,512\n"
      "rose bench prefill --random-weights 20b --lengths 8192,128000 --json prefill.jsonl\n" +
      rest);
  decode->footer(
      "rose bench decode --batch 1,4 --context 100\n"
      "rose bench decode --random-weights 120b --batch 1,128 --context 1024 --json decode.jsonl\n" +
      rest);
  bench->callback([all, bench] {
    if (bench->get_subcommands().empty()) run_model(all->shared, &all->short_prefill, &all->short_decode);
  });
  for (CLI::App* command : bench->get_subcommands({})) command->get_formatter()->column_width(34);
}

}  // namespace rose
