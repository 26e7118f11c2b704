#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/result.h"
#include "bench_ops.h"
#include "bench_ops_cases.h"
#include "bench_ops_inputs.h"
#include "device/backend.h"
#include "device/graph.h"
#include "ops/ceilings/ceilings_cuda.h"

namespace rose {
namespace {

constexpr double kColdBytes = 240e6;     // four times an H200's L2
constexpr double kReplaySeconds = 3e-4;  // of a graph, at least: the events' own time vanishes in it
constexpr double kOpSeconds = 1.5;       // of one row's replays, at most, beyond kReplaysMin
constexpr int kReplaysMin = 5;
// Before a row: behind tensor cores at the power limit the clock stays low for some tens of milliseconds, and a kernel
// that only reads memory took 10 % more.
constexpr auto kRest = std::chrono::milliseconds(150);
constexpr double kWarmSeconds = 0.05;  // of the memory ceilings: a card that was idle reads up to 6 % slower at first
constexpr int kLaunchesMax = 512;

// What the card can do, measured in this run.
struct Ceilings {
  double read_bytes_per_s = 0;
  double copy_bytes_per_s = 0;
  double bf16_flops = 0;
  double e4m3_flops = 0;
  double launch_seconds = 0;  // of an empty kernel behind another in a graph
};

struct OpTiming {
  Spread seconds;
  int launches = 0;  // in one graph
  int copies = 0;    // that they rotate over
  std::int64_t bad = 0;
};

// The least time, and what sets it.
struct Bound {
  double seconds = 0;
  const char* name = "";
  double ceiling = 0;  // bytes/s or FLOP/s
  bool compute = false;
};

double seconds_of(const Stream& stream, const std::function<void()>& work) {
  const Event from = stream.record();
  work();
  const Event to = stream.record();
  to.wait();
  return to.seconds_since(from);
}

template <class Work>
double median_seconds(const Stream& stream, int runs, double warm_seconds, const Work& work) {
  double warm = 0;
  do {
    warm += seconds_of(stream, work);
  } while (warm < warm_seconds);
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) seconds.push_back(seconds_of(stream, work));
  return spread_of(std::move(seconds)).median;
}

RandomFill device_fill_functions() {
  return {.numbers = [](const Stream& s, const Tensor& t, std::uint64_t seed,
                        float size) { ops::cuda::fill_random(s, t, seed, size); },
          .bytes = [](const Stream& s, const Tensor& t, std::uint64_t seed, int low,
                      int high) { ops::cuda::fill_random_bytes(s, t, seed, low, high); }};
}

Ceilings measure_ceilings(const Stream& stream) {
  constexpr std::int64_t kBytes = std::int64_t{4} << 30;
  constexpr int kRuns = 7, kIterations = 20000;  // of the matrix kernel: some 20 ms, so that the power settles
  OpMemory memory(stream, device_fill_functions());
  const Tensor from = memory.random_bytes({kBytes}, 0, 255), to = memory.tensor(DType::kU8, {kBytes});
  const Tensor sink = memory.tensor(DType::kI32, {1});
  const Tensor sums = memory.tensor(DType::kF32, {ops::cuda::matrix_sink_elements(stream)});
  const double bytes = kBytes;
  Ceilings c;
  c.read_bytes_per_s =
      bytes / median_seconds(stream, kRuns, kWarmSeconds, [&] { ops::cuda::read_all(stream, from, sink); });
  c.copy_bytes_per_s =
      2 * bytes / median_seconds(stream, kRuns, kWarmSeconds, [&] { ops::cuda::copy_all(stream, from, to); });
  for (const auto format : {ops::cuda::MatrixFormat::kBf16, ops::cuda::MatrixFormat::kE4m3}) {
    double flops = 0;
    const double s =
        median_seconds(stream, kRuns, 0, [&] { flops = ops::cuda::multiply(stream, format, kIterations, sums); });
    (format == ops::cuda::MatrixFormat::kBf16 ? c.bf16_flops : c.e4m3_flops) = flops / s;
  }
  constexpr int kLaunches = 400;
  const Graph launches = Graph::capture(stream, [&] {
    for (int i = 0; i < kLaunches; ++i) ops::cuda::launch_nothing(stream);
  });
  c.launch_seconds = median_seconds(stream, kRuns, 0, [&] { launches.launch(stream); }) / kLaunches;
  return c;
}

OpTiming time_op(const Stream& stream, const PreparedOp& op, int repeats) {
  op.launch(0);
  stream.synchronize();
  OpTiming timing{.seconds = {}, .copies = op.copies, .bad = bad_numbers(op)};
  const double once = seconds_of(stream, [&] { op.launch(op.copies - 1); });
  const double wanted = std::clamp(std::ceil(kReplaySeconds / once), 1.0, double{kLaunchesMax});
  const int rounds = std::max(1, (static_cast<int>(wanted) + op.copies - 1) / op.copies);
  timing.launches = rounds * op.copies;
  const Graph graph = Graph::capture(stream, [&] {
    for (int i = 0; i < timing.launches; ++i) op.launch(i % op.copies);
  });
  std::vector<double> seconds;
  std::this_thread::sleep_for(kRest);
  const double replay = seconds_of(stream, [&] { graph.launch(stream); });  // warm-up, and how many the time allows
  const int replays = std::min(repeats, std::max(kReplaysMin, static_cast<int>(kOpSeconds / replay)));
  for (int i = 0; i < replays; ++i) {
    seconds.push_back(seconds_of(stream, [&] { graph.launch(stream); }) / timing.launches);
  }
  timing.seconds = spread_of(std::move(seconds));
  return timing;
}

Bound bound_of(const OpCase& c, const Ceilings& ceilings) {
  const Bound bytes{.seconds = c.bytes / ceilings.read_bytes_per_s,
                    .name = "HBM read",
                    .ceiling = ceilings.read_bytes_per_s,
                    .compute = false};
  if (c.unit == MatrixUnit::kNone) return bytes;
  const bool bf16 = c.unit == MatrixUnit::kBf16;
  const double peak = bf16 ? ceilings.bf16_flops : ceilings.e4m3_flops;
  const Bound flops{.seconds = c.flops / peak, .name = bf16 ? "bf16" : "e4m3", .ceiling = peak, .compute = true};
  return flops.seconds > bytes.seconds ? flops : bytes;
}

void print_row(const OpCase& c, const OpTiming& t, const Bound& bound) {
  const double s = t.seconds.median;
  const std::string rate = bound.compute ? fmt::format("{:.0f} TFLOP/s", c.flops / s * 1e-12)
                                         : fmt::format("{:.2f} TB/s", c.bytes / s * 1e-12);
  const std::string best = c.public_us > 0 ? fmt::format("{:.1f}", c.public_us) : "-";
  const std::string ratio = c.public_us > 0 ? fmt::format("{:.2f}", c.public_us * 1e-6 / s) : "-";
  std::printf("%-32s %-22s %10.2f %9.2f - %-9.2f %14s %5.0f %% %-8s %9s %7s%s\n", c.op.c_str(), c.shape.c_str(),
              s * 1e6, t.seconds.p10 * 1e6, t.seconds.p90 * 1e6, rate.c_str(), bound.seconds / s * 100, bound.name,
              best.c_str(), ratio.c_str(), t.bad > 0 ? "  NOT A RESULT: outputs unwritten or NaN" : "");
  std::fflush(stdout);
}

json::Object json_row(const OpCase& c, const OpTiming& t, const Bound& bound) {
  const double s = t.seconds.median;
  json::Object row{{"what", "op"},
                   {"model", "gpt-oss shapes"},
                   {"op", c.op},
                   {"shape", c.shape},
                   {"gpus", 1},
                   {"layout", "EP1 DP1 TP1"},
                   {"seconds", s},
                   {"seconds_p10", t.seconds.p10},
                   {"seconds_p90", t.seconds.p90},
                   {"n", t.seconds.n},
                   {"launches_in_graph", t.launches},
                   {"copies", t.copies},
                   {"l2", t.copies * c.bytes >= kColdBytes ? "cold" : "warm"},
                   {"flops", c.flops},
                   {"bytes", c.bytes},
                   {"tflops_per_s", c.flops / s * 1e-12},
                   {"tb_per_s", c.bytes / s * 1e-12},
                   {"ceiling", bound.name},
                   {"ceiling_value", bound.ceiling},
                   {"share_of_ceiling", bound.seconds / s},
                   {"outputs_bad", t.bad}};
  if (c.public_us > 0) {
    row["public_seconds"] = c.public_us * 1e-6;
    row["public_source"] = c.public_source;
    row["times_faster_than_public"] = c.public_us * 1e-6 / s;
  }
  return row;
}

void report_ceilings(const Ceilings& c, BenchReport& report, const CardState& before) {
  struct Line {
    const char* name;
    double value;
    const char* unit;
    double scale;  // from the value to the unit
  };
  const std::array lines = {Line{"HBM read", c.read_bytes_per_s, "TB/s", 1e-12},
                            Line{"HBM copy", c.copy_bytes_per_s, "TB/s", 1e-12},
                            Line{"bf16", c.bf16_flops, "TFLOP/s", 1e-12}, Line{"e4m3", c.e4m3_flops, "TFLOP/s", 1e-12},
                            Line{"launch", c.launch_seconds, "us", 1e6}};
  for (const Line& line : lines) {
    std::printf("ceiling %-10s %8.2f %s\n", line.name, line.value * line.scale, line.unit);
    report.add({{"what", "ceiling"}, {"ceiling", line.name}, {"ceiling_value", line.value}, {"gpus", 1}}, before);
  }
}

bool run_case(const OpCase& c, const Stream& stream, const Ceilings& ceilings, int repeats, BenchReport& report) {
  const CardState before = report.card_state();
  try {
    const PreparedOp op = prepare_op(c, stream, device_fill_functions(), kColdBytes);
    const OpTiming timing = time_op(stream, op, repeats);
    const Bound bound = bound_of(c, ceilings);
    print_row(c, timing, bound);
    report.add(json_row(c, timing, bound), before);
    return timing.bad == 0;
  } catch (const StartError& error) {
    if (error.exit_code() != kExitDoesNotFit) throw;
    std::fprintf(stderr, "%s is left out: %s\n", c.name().c_str(), error.what());
    return true;
  }
}

}  // namespace

void bench_ops(const std::vector<OpCase>& cases, int repeats, BenchReport& report) {
  std::string why_none;
  if (rose::cuda::device_count(&why_none) == 0) {
    throw StartError(fmt::format("bench ops needs a GPU: {}", why_none), kExitUsage);
  }
  const Stream stream = Stream::cuda(0);
  rose::cuda::make_current(0);
  std::printf("%s\n", rose::cuda::device_description(0).c_str());
  const CardState before = report.card_state();
  const Ceilings ceilings = measure_ceilings(stream);
  report_ceilings(ceilings, report, before);
  std::printf(
      "\nmedians of graph replays over buffers that the cache does not hold; %% of the binding ceiling above; times "
      "faster than the best public figure\n\n%-32s %-22s %10s %21s %14s %16s %9s %7s\n",
      "operation", "shape", "us", "p10 - p90", "rate", "of ceiling", "public us", "times");
  int bad = 0;
  for (const OpCase& c : cases) bad += run_case(c, stream, ceilings, repeats, report) ? 0 : 1;
  if (bad > 0) throw std::runtime_error(fmt::format("{} operations left outputs unwritten or NaN", bad));
}

}  // namespace rose
