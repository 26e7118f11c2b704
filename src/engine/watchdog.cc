#include "engine/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>

#include "base/log.h"
#include "base/result.h"

namespace rose {
namespace {

constexpr auto kLogTime = std::chrono::seconds(2);

std::string where(const RankProgress& rank) {
  if (rank.has_run && rank.on_gpu && rank.collecting) {
    const std::string what =
        rank.graph_rows > 0 ? fmt::format("the graph of {} rows", rank.graph_rows) : std::string("all of it");
    return what + " is queued, but the GPU does not end it (--no-graphs and CUDA_LAUNCH_BLOCKING=1 show where)";
  }
  if (rank.has_run) return "has run, and waits for the engine's loop to collect it";
  const std::string layer = rank.place.layer < 0 ? "outside of the layers" : fmt::format("layer {}", rank.place.layer);
  return fmt::format("{}, {}", layer, *rank.place.operation == '\0' ? "between operations" : rank.place.operation);
}

}  // namespace

double StuckSteps::turn_s() const { return std::clamp(timeout_s_ / 20, 0.005, 1.0); }

std::string StuckSteps::look(Time now, std::span<const RankProgress> ranks) {
  // A process that was stopped (a signal, a debugger, a machine without a core to spare) finds its clock far ahead; its
  // steps stood still as long as it did.
  const double passed = std::clamp(seconds_between(last_, now), 0.0, 2 * turn_s());
  last_ = now;
  seen_.resize(ranks.size());
  double longest = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankProgress& rank = ranks[i];
    Seen& seen = seen_[i];
    const bool same = rank.in_flight && seen.in_flight && rank.steps_ended == seen.steps_ended;
    seen = {.steps_ended = rank.steps_ended, .in_flight = rank.in_flight, .seconds = same ? seen.seconds + passed : 0};
    longest = std::max(longest, seen.seconds);
  }
  if (longest < timeout_s_) return "";
  std::string report = "watchdog: a step does not end";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].in_flight) continue;
    report += fmt::format("; rank {}: step {} of {} row{}, for {:.1f} s: {}", i, ranks[i].steps_ended + 1,
                          ranks[i].rows, ranks[i].rows == 1 ? "" : "s", seen_[i].seconds, where(ranks[i]));
  }
  return report;
}

Watchdog::Watchdog(double timeout_s, Look look, Action action)
    : steps_(timeout_s), look_(std::move(look)), action_(std::move(action)), thread_([this] { loop(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void Watchdog::loop() {
  const std::chrono::duration<double> turn(steps_.turn_s());
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stopped_.wait_for(lock, turn, [this] { return stopping_; })) return;
    }
    if (const std::string report = steps_.look(Clock::now(), look_()); !report.empty()) return action_(report);
  }
}

void end_stuck_process(const std::string& report) {
  // On a thread of its own: whoever reads the log may have stopped reading, and the stuck thread may be the one that
  // holds the log.
  const auto written = std::make_shared<std::promise<void>>();
  const std::future<void> done = written->get_future();
  std::thread([report, written] {
    spdlog::critical("{}; ending the process with exit code {}", report, static_cast<int>(kExitWatchdog));
    spdlog::default_logger_raw()->flush();
    written->set_value();
  }).detach();
  (void)done.wait_for(kLogTime);
  _exit(kExitWatchdog);
}

}  // namespace rose
