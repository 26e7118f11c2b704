#include "load.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "arguments.h"
#include "base/log.h"
#include "default_model.h"
#include "device/backend.h"
#include "engine/engine.h"
#include "engine/watchdog.h"
#include "weights/random_source.h"

namespace rose {
namespace {

constexpr double kGpuWatchdogSeconds = 300;      // its longest step takes a second
constexpr std::uint64_t kRandomWeightsSeed = 1;  // the same weights in every run: logits can be compared

std::unique_ptr<WeightSource> open_source(const LoadOptions& options, const std::string& path) {
  if (!options.random_weights.empty() && !options.checkpoint.empty()) {
    throw StartError("give a checkpoint or --random-weights, not both", kExitUsage);
  }
  std::unique_ptr<WeightSource> source = open_weights(path);
  if (options.random_weights.empty()) return source;
  // The text side of the embedded model: random weights have nothing to say, and any tokenizer says it.
  return open_random_weights(options.random_weights, kRandomWeightsSeed, std::string(source->tokenizer_json()));
}

std::string model_name(const LoadOptions& options, const std::string& path) {
  if (!options.random_weights.empty()) return "random-gpt-oss-" + options.random_weights;
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  const std::string last = whole.filename().string();
  return last.empty() ? whole.parent_path().filename().string() : last;
}

WeightFormat expert_format(const LoadOptions& options, const WeightSource& source) {
  if (options.experts.empty()) return source.expert_format();
  return *weight_format_from_name(options.experts);  // the option's check allows known names only
}

WeightFormat dense_format(const LoadOptions& options) { return *weight_format_from_name(options.dense); }

DType activations_on(Device device) { return device.is_cpu() ? DType::kF32 : DType::kBf16; }

// The GPUs where there are any that the kernels are for, else the CPU.
std::vector<Stream> choose_streams(const LoadOptions& options, int threads) {
  std::string why_none;
  const int gpus = options.device == "cpu" ? 0 : cuda::device_count(&why_none);
  if (options.device == "cuda" && gpus == 0) {
    throw StartError(fmt::format("--device cuda: {}", why_none), kExitDoesNotFit);
  }
  std::vector<Stream> streams;
  if (gpus > 0) {
    if (options.tp > 1) {
      throw StartError(fmt::format("--tp {} on GPUs is not there yet: give --tp 1, or --device cpu", options.tp),
                       kExitUsage);
    }
    streams.push_back(Stream::cuda(0));
  } else {
    for (int rank = 0; rank < options.tp; ++rank) streams.push_back(Stream::cpu(threads));
  }
  return streams;
}

std::string describe_device(Device device, int ranks, int threads) {
  if (!device.is_cpu()) return fmt::format("{}: {}", device.name(), cuda::device_description(device.ordinal));
  return fmt::format("no GPU: CPU back end, {} rank{} x {} thread{}", ranks, ranks == 1 ? "" : "s", threads,
                     threads == 1 ? "" : "s");
}

int threads_of_rank(const LoadOptions& options) {
  if (options.threads > 0) return options.threads;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, cores / options.tp);
}

// eos_token_id of generation_config.json: one id or a list.
std::vector<TokenId> generation_stop_tokens(const json::Value& generation_config) {
  std::vector<TokenId> ids;
  const auto add = [&](const json::Value& id) {
    if (!id.is_int64()) throw StartError("generation_config.json: eos_token_id must be an id or a list of ids");
    ids.push_back(static_cast<TokenId>(id.as_int64()));
  };
  if (!generation_config.is_object()) return ids;
  const json::Value* eos = generation_config.as_object().if_contains("eos_token_id");
  if (eos == nullptr || eos->is_null()) return ids;
  if (eos->is_array()) {
    for (const json::Value& id : eos->as_array()) add(id);
  } else {
    add(*eos);
  }
  return ids;
}

std::vector<std::unique_ptr<Model>> load_ranks(WeightSource& source, const LoadOptions& options, WeightFormat format,
                                               const std::vector<Stream>& streams, const Progress& progress) {
  std::vector<std::unique_ptr<Model>> ranks;
  for (int rank = 0; rank < options.tp; ++rank) {
    const ModelOptions model_options{
        .plan = {.dp = 1, .tp = options.tp, .ep = options.ep == 0 ? options.tp : options.ep},
        .rank = rank,
        .expert_format = format,
        .activations = activations_on(streams[0].device()),
        .bf16_experts = options.bf16_experts,
        .dense_format = dense_format(options),
        .routing = *ops::routing_mode_from_name(options.routing),
        .fused_decode = options.fused_decode};
    ranks.push_back(load_model(
        source, model_options, streams[static_cast<std::size_t>(rank)], [&](std::uint64_t done, std::uint64_t total) {
          if (progress) {
            progress(static_cast<std::uint64_t>(rank) * total + done, total * static_cast<std::uint64_t>(options.tp));
          }
        }));
  }
  return ranks;
}

EngineOptions engine_options(const LoadOptions& options, Device device, int threads) {
  const bool gpu = !device.is_cpu();
  const auto given_or = [](int given, int otherwise) { return given != 0 ? given : otherwise; };
  EngineOptions engine;
  engine.context_max = options.max_context;
  engine.sequences_max = given_or(options.sequences_max, gpu ? 256 : 64);
  engine.rows_max = given_or(options.rows_max, gpu ? 8192 : 512);
  engine.requests_waiting_max = options.queue_max;
  const double kv_memory_gib = options.kv_memory_gib == 0 && !gpu ? 1 : options.kv_memory_gib;
  engine.kv_bytes = static_cast<std::size_t>(kv_memory_gib * (1 << 30));
  engine.memory_share = options.memory_share;
  engine.kv_dtype = kv_dtype(options);
  engine.activations = activations_on(device);
  engine.prefix_cache = options.prefix_cache;
  engine.graphs = options.graphs;
  engine.hash_logits = options.hash_logits;
  engine.threads = threads;
  engine.watchdog_s = options.watchdog_s.value_or(gpu ? kGpuWatchdogSeconds : 0);
  std::random_device entropy;
  engine.random_seed = (static_cast<std::uint64_t>(entropy()) << 32) | entropy();
  return engine;
}

void count_step_bytes(const WeightSource& source, const WeightFormats& formats, LoadedModel& model) {
  visit_model_specs(source, [&](const WeightSpec& spec) {
    const auto bytes = static_cast<double>(slice_bytes(spec, slice_of(spec, {}, 0), formats));
    if (spec.kind == WeightKind::kExperts) {
      model.expert_bytes += bytes;
    } else if (spec.name != "embedding") {
      model.dense_bytes += bytes;
    }
  });
}

void add_step_options(CLI::App& command, LoadOptions& options) {
  command
      .add_option("--max-num-batched-tokens", options.rows_max,
                  "rows of one step; default: 512 on the CPU, 8192 on a GPU")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--max-num-seqs", options.sequences_max,
                  "sequences running at once; default: 64 on the CPU, 256 on a GPU")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--max-num-queued-reqs", options.queue_max,
                  "requests waiting; more are refused with 503 and Retry-After")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_flag("--prefix-cache,!--no-prefix-cache", options.prefix_cache, "reuse the KV of equal prompt beginnings")
      ->capture_default_str();
  command
      .add_option("--watchdog-timeout", options.watchdog_s,
                  "seconds after which a step that does not end ends the process: rank, step and place in the log,\n"
                  "exit code 6; 0: never; default: 300 on a GPU, 0 on the CPU")
      ->check(CLI::Range(0.0, kWatchdogSecondsMax));
}

}  // namespace

DType kv_dtype(const LoadOptions& options) { return options.kv_cache_dtype == "fp8" ? DType::kF8E4M3 : DType::kBf16; }

void add_load_options(CLI::App& command, LoadOptions& options) {
  command.add_option("checkpoint", options.checkpoint,
                     "a checkpoint folder in the published layout, or a file made by rose convert\n"
                     "(default: the embedded model rose-tiny)");
  command
      .add_option("--random-weights", options.random_weights,
                  "no checkpoint: random weights in the shapes of gpt-oss-20b or gpt-oss-120b, for benchmarks")
      ->check(CLI::IsMember({"20b", "120b"}));
  command.add_option("--device", options.device, "auto: a Hopper GPU where there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "CPU threads of a rank; 0: cores / ranks")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--tensor-parallel-size,--tp", options.tp, "ranks that share each layer")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  command.add_option("--expert-parallel-size,--ep", options.ep, "ranks that divide the experts; 0: as --tp")
      ->check(CLI::Range(0, 8))
      ->capture_default_str();
  command.add_option("--experts", options.experts, "format of the experts in memory; default: as stored")
      ->check(CLI::IsMember({"mxfp4", "fp8", "bf16"}));
  command
      .add_option(
          "--dense", options.dense,
          "format in memory of the attention and unembedding matrices: bf16 as stored, or fp8: half the bytes,\n"
          "rounded at start; on a GPU their inputs are rounded to FP8 too, and --fused-decode does not apply")
      ->check(CLI::IsMember({"bf16", "fp8"}))
      ->capture_default_str();
  command.add_flag("--bf16-experts", options.bf16_experts,
                   "on a GPU: the experts' activations stay bf16 instead of FP8: exact, and slower for long prompts");
  command.add_flag("--fused-decode,--no-fused-decode{false}", options.fused_decode,
                   "on a GPU: a step of one row takes one kernel through all layers (gpt-oss's shapes, bf16 matrices,\n"
                   "MXFP4 experts); without it, an operation a kernel, as steps of more rows (default: with)");
  command
      .add_option("--max-model-len,--max-context", options.max_context,
                  "longest prompt + answer in tokens, or 128K, or auto: the model's, as far as the KV memory goes")
      ->transform([](const std::string& text) {
        const std::string tokens = token_count(text);
        if (tokens.empty())
          throw CLI::ValidationError("'" + text + "' is not a number of tokens such as 4096, 128K or auto");
        return tokens;
      })
      ->capture_default_str();
  command
      .add_option("--kv-memory", options.kv_memory_gib,
                  "GiB for keys and values, each rank; default: 1 on the CPU, on a GPU --gpu-memory-utilization\n"
                  "of what weights and activations leave")
      ->check(CLI::Range(0.001, 4096.0));
  command
      .add_option("--kv-cache-dtype", options.kv_cache_dtype,
                  "format of keys and values; auto: bf16; fp8: e4m3 without scales, half the memory, less exact")
      ->check(CLI::IsMember({"auto", "bf16", "fp8"}))
      ->capture_default_str();
  command
      .add_flag("--graphs,!--no-graphs", options.graphs,
                "on a GPU: decoding steps run as recorded graphs; without them an error names its operation")
      ->capture_default_str();
  command
      .add_option("--gpu-memory-utilization", options.memory_share,
                  "share of the memory left by weights and activations that keys and values may take")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  add_step_options(command, options);
}

LoadedModel load(const LoadOptions& options, const Progress& progress) {
  const Time begin = Clock::now();
  const std::string path = options.checkpoint.empty() ? default_model_path() : options.checkpoint;
  const std::unique_ptr<WeightSource> source = open_source(options, path);
  const WeightFormat format = expert_format(options, *source);
  const int threads = threads_of_rank(options);

  LoadedModel model;
  model.name = model_name(options, path);
  model.shape = model_shape(*source);
  model.tokenizer = tokenizer_from_json(source->tokenizer_json());
  if (model.tokenizer->vocabulary() > model.shape.vocabulary) {
    throw StartError(fmt::format("{}: tokenizer.json has ids up to {}, the model only {} of them", path,
                                 model.tokenizer->vocabulary() - 1, model.shape.vocabulary));
  }
  model.chat_format =
      make_chat_format(source->chat_format(), model.tokenizer, generation_stop_tokens(source->generation_config()));
  count_step_bytes(*source, {format, dense_format(options)}, model);

  std::vector<Stream> streams = choose_streams(options, threads);
  model.device = streams[0].device();
  std::vector<std::unique_ptr<Model>> ranks = load_ranks(*source, options, format, streams, progress);
  for (const auto& rank : ranks) model.weight_bytes += rank->weight_bytes();
  model.engine = make_engine(std::move(ranks), make_loopback_communicators(options.tp),
                             engine_options(options, model.device, threads), std::move(streams));
  model.load_s = seconds_between(begin, Clock::now());
  model.summary = fmt::format(
      "rose {}, {}\n{}\n{} layers, {} experts, {:.1f} MiB of weights in memory ({} experts, {} dense), context {} "
      "tokens; loaded in {:.2f} s\n",
      ROSE_VERSION, describe_device(model.device, options.tp, threads), source->describe(), model.shape.layers,
      model.shape.experts, static_cast<double>(model.weight_bytes) / (1 << 20), weight_format_name(format),
      options.dense, model.engine->limits().context_max, model.load_s);
  return model;
}

Progress terminal_progress(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return [](std::uint64_t, std::uint64_t) {};
  return [what, shown = -1](std::uint64_t done, std::uint64_t total) mutable {
    const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
    if (percent == shown) return;
    shown = percent;
    const std::string bar(static_cast<std::size_t>(percent / 4), '#');
    std::fprintf(stderr, "\r%s [%-25s] %3d %%%s", what.c_str(), bar.c_str(), percent, percent == 100 ? "\r\033[K" : "");
  };
}

}  // namespace rose
