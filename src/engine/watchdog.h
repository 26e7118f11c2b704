// Ends the process when a step does not end: a kernel that waits for another block, a lost rank, a loop that is stuck
// would otherwise leave a server that answers health checks and nothing else.
//
// It only looks: ranks say what they have done in atomics that cost a step nothing, and a thread of the watchdog's own,
// which shares no lock with the engine and makes no CUDA call, reads them from time to time. It measures how long it
// has seen the same step in flight, so an engine without one (idle, loading, recording graphs, drained) is never late.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/place.h"

namespace rose {

inline constexpr double kWatchdogSecondsMax = 86400;

// A rank as other threads see it. What is said of the step is true of a step that stays in flight.
struct RankProgress {
  std::uint64_t steps_ended = 0;  // the oldest step in flight is number steps_ended + 1, as in Step::number
  bool in_flight = false;
  bool on_gpu = false;
  bool has_run = false;     // the rank's thread is through with the step; on a GPU: has queued all of it
  bool collecting = false;  // the loop thread waits for this rank
  int rows = 0;
  int graph_rows = 0;  // the step runs as the graph of so many rows; 0: it does not
  Place place = {};    // of the rank's thread
};

// The judgement alone: no clock, no thread.
class StuckSteps {
 public:
  explicit StuckSteps(double timeout_s) : timeout_s_(timeout_s) {}

  // Seconds between two looks: a report is late by two at most, and never early.
  double turn_s() const;
  // The report, if a rank's oldest step has been the same for the timeout; else "".
  std::string look(Time now, std::span<const RankProgress> ranks);

 private:
  struct Seen {
    std::uint64_t steps_ended = 0;
    bool in_flight = false;
    double seconds = 0;
  };

  double timeout_s_;
  Time last_ = {};
  std::vector<Seen> seen_ = {};  // by rank
};

class Watchdog {
 public:
  using Look = std::function<std::vector<RankProgress>()>;  // on the watchdog's thread; must not wait for anything
  using Action = std::function<void(const std::string& report)>;  // likewise, once

  Watchdog(double timeout_s, Look look, Action action);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void loop();

  StuckSteps steps_;
  const Look look_;
  const Action action_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

// The report to the log, then kExitWatchdog. Nothing is joined or destroyed: that would wait for the stuck thread.
[[noreturn]] void end_stuck_process(const std::string& report);

}  // namespace rose
