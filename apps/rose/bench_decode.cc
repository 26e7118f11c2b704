#include <algorithm>
#include <cmath>
#include <set>

#include "bench_model.h"
#include "bench_requests.h"
#include "ops/force_routing/force_routing.h"

namespace rose {
namespace {

struct Shape {
  int batch = 1;
  int context = 0;
  int steps = 0;
  int rows_max = 0;
};

// Enough for the timed steps behind those in which the other prompts are computed; an end all the same, so that a batch
// that does not fit beside itself fails instead of running on.
int tokens_max(const Shape& shape, int context_max) {
  const int rows_max = shape.rows_max == 0 ? 512 : shape.rows_max;  // the smallest that the engine chooses
  const std::int64_t rows = std::max(1, rows_max - shape.batch);
  const std::int64_t prefill_steps =
      2 * ((static_cast<std::int64_t>(shape.batch) * shape.context + rows - 1) / rows + shape.batch);
  return static_cast<int>(std::min<std::int64_t>(context_max - shape.context, 1 + prefill_steps + 2 * shape.steps));
}

// Seconds a step while all sequences of the batch decode. The engine mixes chunks of prompts with steps of those that
// already decode, so the clock starts with the first token of the sequence that comes last and runs for `steps` of its
// tokens; then everything is cancelled. Throws where a sequence missed steps in that time: its rows waited for others.
double step_seconds(BenchRequests& requests, const Shape& shape) {
  const int longest = tokens_max(shape, requests.engine().limits().context_max);
  std::vector<BenchRequests::Sent> sent;
  for (int i = 0; i < shape.batch; ++i) sent.push_back(requests.send(shape.context, longest));
  Time begin{};
  TimedSink* last = nullptr;
  for (const auto& s : sent) {
    const Time first = s.sink->wait_tokens(1)[0];
    if (last == nullptr || first >= begin) begin = first, last = s.sink.get();
  }
  const auto steps = static_cast<std::size_t>(shape.steps);
  const Time end = last->wait_tokens(1 + steps)[steps];
  for (const auto& s : sent) requests.engine().cancel(s.id);
  for (const auto& s : sent) {
    const std::vector<Time> arrivals = s.sink->wait_tokens(1);
    const auto decoded = std::count_if(arrivals.begin(), arrivals.end(), [&](Time t) { return t > begin && t <= end; });
    if (decoded + 1 < shape.steps) {
      throw std::runtime_error(
          fmt::format("a sequence of {} decoded in {} of {} steps: more --max-num-batched-tokens or --kv-memory, or a "
                      "smaller --batch",
                      shape.batch, decoded, shape.steps));
    }
  }
  for (const auto& s : sent) s.sink->wait_end();
  return seconds_between(begin, end) / shape.steps;
}

// Share of the experts that a step of `rows` rows touches, over the layers: counted where the routing is forced, else
// what is expected of rows that choose at random.
double experts_touched(const ModelShape& shape, const std::string& routing, int rows) {
  if (shape.experts == 0) return 0;
  const int each = shape.experts_per_token;
  const ops::RoutingMode mode = ops::routing_mode_from_name(routing).value_or(ops::RoutingMode::kNatural);
  if (mode == ops::RoutingMode::kNatural) return 1 - std::pow(1 - static_cast<double>(each) / shape.experts, rows);
  const ops::ForcedRouting forced(mode, shape.experts);
  std::int64_t touched = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::set<std::int32_t> seen;
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(each));
    for (int row = 0; row < rows; ++row) {
      ops::choose_forced(forced.pattern(), static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(row), each,
                         chosen.data());
      seen.insert(chosen.begin(), chosen.end());
    }
    touched += static_cast<std::int64_t>(seen.size());
  }
  return static_cast<double>(touched) / (static_cast<double>(shape.layers) * shape.experts);
}

void measure(const BenchRun& run, BenchRequests& requests, const Shape& shape) {
  const Layout layout = layout_of(run.options.load);
  const CardState before = run.report.card_state();
  const Spread step = repeated(fmt::format("decode, {} sequences behind {} tokens", shape.batch, shape.context),
                               run.options.repeats, [&] { return step_seconds(requests, shape); });
  const double tokens_per_s = shape.batch / step.median;
  const double dollars = dollars_per_million(shape.batch, step.median, layout.gpus(), run.options.gpu_hour_price);
  const double weights =
      run.model.dense_bytes +
      run.model.expert_bytes * experts_touched(run.model.shape, run.options.load.routing, shape.batch);
  std::printf("%-14s %9d %9d %12.3f %8.3f - %-8.3f %10.0f %12.1f %12.3f %12.3f\n", layout.name().c_str(), shape.batch,
              shape.context, step.median * 1e3, step.p10 * 1e3, step.p90 * 1e3, tokens_per_s, 1 / step.median, dollars,
              weights / step.median * 1e-12);
  std::fflush(stdout);

  json::Object row = model_fields(run, "decode");
  row["batch"] = shape.batch;
  row["context"] = shape.context;
  row["steps"] = shape.steps;
  row["seconds"] = step.median;
  row["seconds_p10"] = step.p10;
  row["seconds_p90"] = step.p90;
  row["n"] = step.n;
  row["tokens_per_s"] = tokens_per_s;
  row["tokens_per_s_per_sequence"] = 1 / step.median;
  row["dollars_per_million_tokens"] = dollars;
  row["weight_bytes"] = weights;
  row["weight_bytes_per_s"] = weights / step.median;
  run.report.add(std::move(row), before);
}

}  // namespace

void bench_decode(const BenchRun& run, const DecodeOptions& options) {
  BenchRequests requests(*run.model.engine, run.model.shape.vocabulary);
  std::printf(
      "\ndecode, %d steps in which all sequences decode; dollars for a million output tokens at $%.2f a GPU-hour;\n"
      "weights: what a step reads of them, over its time; medians of %d\n\n%-14s %9s %9s %12s %19s %10s %12s %12s "
      "%12s\n",
      options.steps, run.options.gpu_hour_price, run.options.repeats, run.model.name.c_str(), "sequences", "context",
      "step ms", "p10 - p90", "tokens/s", "/s/sequence", "$/M tokens", "weights TB/s");
  for (const int context : options.contexts) {
    for (const int batch : options.batches) {
      measure(run, requests,
              {.batch = batch, .context = context, .steps = options.steps, .rows_max = run.options.load.rows_max});
    }
  }
}

}  // namespace rose
