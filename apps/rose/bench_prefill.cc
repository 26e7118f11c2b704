#include <optional>

#include "bench_model.h"
#include "bench_published.h"
#include "bench_requests.h"

namespace rose {
namespace {

constexpr int kColumn = 20;

struct Cell {
  int tokens = 0;
  Spread seconds = {};
  double dollars = 0;
  std::optional<PublishedPrefill> published;
};

double first_token_seconds(BenchRequests& requests, int tokens) {
  const BenchRequests::Sent sent = requests.send(tokens, 1);
  const double seconds = seconds_between(sent.at, sent.sink->wait_tokens(1)[0]);
  sent.sink->wait_end();
  return seconds;
}

Cell measure(const BenchRun& run, BenchRequests& requests, int tokens) {
  const Layout layout = layout_of(run.options.load);
  const CardState before = run.report.card_state();
  Cell cell{.tokens = tokens, .published = published_prefill(published_model(run.model.shape), layout.gpus(), tokens)};
  cell.seconds = repeated(fmt::format("prefill, {} tokens", tokens), run.options.repeats,
                          [&] { return first_token_seconds(requests, tokens); });
  cell.dollars = dollars_per_million(tokens, cell.seconds.median, layout.gpus(), run.options.gpu_hour_price);

  json::Object row = model_fields(run, "prefill");
  row["batch"] = 1;
  row["tokens"] = tokens;
  row["seconds"] = cell.seconds.median;
  row["seconds_p10"] = cell.seconds.p10;
  row["seconds_p90"] = cell.seconds.p90;
  row["n"] = cell.seconds.n;
  row["tokens_per_s"] = tokens / cell.seconds.median;
  row["dollars_per_million_tokens"] = cell.dollars;
  if (cell.published) {
    row["published_seconds"] = cell.published->seconds;
    row["published_dollars_per_million_tokens"] = cell.published->dollars;
    row["published_source"] = kPublishedPrefillSource;
    row["times_faster_than_published"] = cell.published->seconds / cell.seconds.median;
  }
  run.report.add(std::move(row), before);
  return cell;
}

// One line of the table: a name, then what `text` says of each cell.
template <class Text>
void print_line(const std::string& name, const std::vector<Cell>& cells, const Text& text) {
  std::printf("%-14s", name.c_str());
  for (const Cell& c : cells) std::printf(" %*s", kColumn, std::string(text(c)).c_str());
  std::printf("\n");
}

void print_table(const BenchRun& run, const std::vector<Cell>& cells) {
  std::printf(
      "\nprefill, batch 1, no prefix cached: seconds from request to first token, dollars for a million input tokens\n"
      "at $%.2f a GPU-hour; medians of %d\n\n",
      run.options.gpu_hour_price, run.options.repeats);
  print_line(run.model.name, cells, [](const Cell& c) { return fmt::format("{}", c.tokens); });
  print_line(layout_of(run.options.load).name(), cells,
             [](const Cell& c) { return cell(c.seconds.median, c.dollars); });
  print_line("p10 - p90", cells,
             [](const Cell& c) { return fmt::format("{:.4f} - {:.4f}", c.seconds.p10, c.seconds.p90); });
  print_line("tokens/s", cells, [](const Cell& c) { return fmt::format("{:.0f}", c.tokens / c.seconds.median); });
  const bool published = std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.published.has_value(); });
  if (!published) return;
  print_line("published", cells,
             [](const Cell& c) { return c.published ? cell(c.published->seconds, c.published->dollars) : "-"; });
  print_line("times faster", cells, [](const Cell& c) {
    return c.published ? fmt::format("{:.2f}", c.published->seconds / c.seconds.median) : "-";
  });
  std::printf("published: %s\n", kPublishedPrefillSource);
}

}  // namespace

std::vector<int> lengths_that_fit(const BenchRun& run, const PrefillOptions& options) {
  const int context_max = run.model.engine->limits().context_max;
  std::vector<int> lengths;
  for (const int tokens : options.lengths) {
    if (tokens < context_max) {
      lengths.push_back(tokens);
    } else {
      std::fprintf(stderr, "prefill of %d tokens is left out: the context holds %d (--max-model-len, --kv-memory)\n",
                   tokens, context_max);
    }
  }
  if (lengths.empty()) {
    throw StartError(fmt::format("no length of --lengths fits in a context of {} tokens", context_max), kExitUsage);
  }
  return lengths;
}

void bench_prefill(const BenchRun& run, const PrefillOptions& options) {
  BenchRequests requests(*run.model.engine, run.model.shape.vocabulary);
  std::vector<Cell> cells;
  for (const int tokens : lengths_that_fit(run, options)) cells.push_back(measure(run, requests, tokens));
  print_table(run, cells);
}

}  // namespace rose
