#include "convert.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "models/model.h"
#include "weights/rose_writer.h"

namespace rose {
namespace {

// Set by a signal, asked for by the writer between pieces: the only thing a signal can safely leave behind.
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

// While it lives, SIGINT, SIGTERM and SIGHUP end the conversion cleanly; a second one ends the process at once.
class StopSignals {
 public:
  StopSignals() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { g_signal.store(signal); };
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &previous_[i]);
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction previous_[std::size(kSignals)]{};
};

std::string size_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1ull << 30) return fmt::format("{:.2f} GiB", value / (1ull << 30));
  if (bytes >= 1ull << 20) return fmt::format("{:.2f} MiB", value / (1ull << 20));
  return fmt::format("{:.1f} KiB", value / (1ull << 10));
}

// A bar on a terminal; elsewhere a line every few seconds, so that a log shows life without filling up.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(Time begin) : begin_(begin), last_line_(begin), terminal_(isatty(STDERR_FILENO) != 0) {}

  void show(std::uint64_t done, std::uint64_t total) {
    const Time now = Clock::now();
    const double interval = terminal_ ? 0.1 : 3.0;
    const bool last = done == total;
    if (seconds_between(last_line_, now) < interval && !(terminal_ && last)) return;
    last_line_ = now;
    const double seconds = std::max(seconds_between(begin_, now), 1e-3);
    const int percent =
        total == 0 ? 100 : static_cast<int>(static_cast<double>(done) * 100 / static_cast<double>(total));
    const std::string text = fmt::format("{:3} %  {} of {}, {}/s", percent, size_text(done), size_text(total),
                                         size_text(static_cast<std::uint64_t>(static_cast<double>(done) / seconds)));
    if (terminal_) {
      const std::string bar(static_cast<std::size_t>(percent / 4), '#');
      std::fprintf(stderr, "\rconverting [%-25s] %s\033[K", bar.c_str(), text.c_str());
    } else {
      std::fprintf(stderr, "converting %s\n", text.c_str());
    }
  }
  void clear() const {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  Time begin_;
  Time last_line_;
  bool terminal_;
};

struct ConvertCommand {
  std::string source;
  std::string destination;
  std::string experts;  // empty: as stored
  bool allow_inexact = false;
  bool force = false;
  int threads = 0;
};

std::string tile_summary(const TileReport& tiles) {
  if (tiles.tiles == 0) return "";
  std::string text = fmt::format("\nFP8 tiles  {:>12}  of which rounded: {}\n", tiles.tiles, tiles.inexact);
  if (tiles.inexact > 0 && !tiles.first_inexact.empty()) text += fmt::format("  first: {}\n", tiles.first_inexact);
  bool headed = false;
  for (std::size_t spread = 0; spread < tiles.spread.size(); ++spread) {
    if (tiles.spread[spread] == 0) continue;
    if (!headed) text += "  span of the exponents in a tile (up to 14 is always exact):\n";
    headed = true;
    text += fmt::format("  {:>7}  {:>12}\n", spread, tiles.spread[spread]);
  }
  return text;
}

void print_summary(const ConvertReport& report, const std::string& path, double seconds) {
  fmt::print("{}: {}, written in {:.1f} s\n\n", path, size_text(report.file_bytes), seconds);
  fmt::print("{:<10} {:>8} {:>12}\n", "", "tensors", "size");
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp4}) {
    const ConvertReport::PerFormat& row = report.formats[static_cast<std::size_t>(format)];
    if (row.tensors > 0)
      fmt::print("{:<10} {:>8} {:>12}\n", weight_format_name(format), row.tensors, size_text(row.bytes));
  }
  fmt::print("{:<10} {:>8} {:>12}\n", "biases", "", size_text(report.bias_bytes));
  fmt::print("{:<10} {:>8} {:>12}\n", "tokenizer", "", size_text(report.tokenizer_bytes));
  fmt::print("{}", tile_summary(report.tiles));
}

// A destination inside or over the source would be read while it is written.
void check_destination(const ConvertCommand& command) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(command.destination, error)) {
    throw StartError(fmt::format("{} is a folder: name the file to write, for example {}/model.rose",
                                 command.destination, command.destination),
                     kExitUsage);
  }
  if (fs::equivalent(command.source, command.destination, error)) {
    throw StartError(fmt::format("{} is the source itself: choose another name", command.destination), kExitUsage);
  }
  if (fs::exists(command.destination, error) && !command.force) {
    throw StartError(fmt::format("{} exists already: --force replaces it", command.destination), kExitUsage);
  }
}

int run_convert(const ConvertCommand& command) {
  check_destination(command);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = command.threads > 0 ? command.threads : std::min(cores, 16);
  const std::unique_ptr<StoredSource> source = open_stored(command.source, {.threads = threads});
  const ConvertOptions options{
      .experts = command.experts.empty() ? source->expert_format() : *weight_format_from_name(command.experts),
      .allow_inexact = command.allow_inexact,
      .replace = command.force,
      .threads = threads};
  std::vector<WeightSpec> specs;
  visit_model_specs(*source, [&](const WeightSpec& spec) { specs.push_back(spec); });

  const StopSignals signals;
  const Time begin = Clock::now();
  ProgressPrinter printer(begin);
  try {
    const ConvertReport report = write_rose_file(
        *source, specs, command.destination, "rose " ROSE_VERSION, options,
        [&](std::uint64_t done, std::uint64_t total) { printer.show(done, total); },
        [] { return g_signal.load() != 0; });
    printer.clear();
    print_summary(report, command.destination, seconds_between(begin, Clock::now()));
  } catch (const StartError& error) {
    printer.clear();
    if (g_signal.load() == 0) throw;
    std::fprintf(stderr, "rose: %s\n", error.what());
    return 128 + g_signal.load();  // as a shell reports a process that the signal ended
  }
  return 0;
}

}  // namespace

void register_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* command = app.add_subcommand("convert", "write a checkpoint as one checked file that starts faster");
  command->add_option("source", options->source, "a checkpoint folder, or a rose file")->required();
  command->add_option("destination", options->destination, "the file to write, for example gpt-oss-20b.rose")
      ->required();
  command->add_option("--experts", options->experts, "format of the experts in the file; default: as stored")
      ->check(CLI::IsMember({"mxfp4", "fp8", "bf16"}));
  command->add_flag("--allow-inexact", options->allow_inexact,
                    "with --experts fp8: round tiles whose values FP8 cannot hold exactly, instead of refusing");
  command->add_flag("--force", options->force, "replace the destination");
  command->add_option("--threads", options->threads, "0: one for each core, at most 16")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([options] {
    if (const int code = run_convert(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace rose
