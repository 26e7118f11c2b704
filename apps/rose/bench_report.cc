#include "bench_report.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "base/result.h"
#include "bench_commit.h"

namespace rose {
namespace {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

template <class T>
json::Value value_or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value(nullptr);
}
json::Value text_or_null(const std::string& text) { return text.empty() ? json::Value(nullptr) : json::Value(text); }

}  // namespace

Spread repeated(std::string_view what, int repeats, const std::function<double()>& measure) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto tell = [&](int run) {
    if (terminal) std::fprintf(stderr, "\r\033[K%s: %d/%d", std::string(what).c_str(), run, repeats);
  };
  if (!terminal) std::fprintf(stderr, "%s: %d runs\n", std::string(what).c_str(), repeats);
  tell(0);
  measure();
  std::vector<double> values;
  for (int i = 0; i < repeats; ++i) {
    values.push_back(measure());
    tell(i + 1);
  }
  if (terminal) std::fprintf(stderr, "\r\033[K");
  return spread_of(std::move(values));
}

BenchReport::BenchReport(const std::string& json_path) : path_(json_path) {
  if (json_path.empty()) return;
  file_.reset(std::fopen(json_path.c_str(), "w"));
  if (!file_) throw StartError(fmt::format("cannot write {}", json_path), kExitUsage);
}

void BenchReport::add(json::Object row, const CardState& before) {
  if (!file_) return;
  const CardState after = card_state();
  row["card"] = text_or_null(card_ ? card_->name() : "");
  row["driver"] = text_or_null(card_ ? card_->driver() : "");
  row["sm_clock_mhz_before"] = value_or_null(before.sm_clock_mhz);
  row["sm_clock_mhz_after"] = value_or_null(after.sm_clock_mhz);
  row["power_w_before"] = value_or_null(before.power_w);
  row["power_w_after"] = value_or_null(after.power_w);
  row["temperature_c"] = value_or_null(after.temperature_c);
  row["version"] = ROSE_VERSION;
  row["commit"] = kBenchCommit;
  row["command"] = command_line();
  row["date"] = date_now();
  const std::string line = json::serialize(row) + "\n";
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    throw StartError(fmt::format("cannot write {}", path_), kExitUsage);
  }
}

}  // namespace rose
