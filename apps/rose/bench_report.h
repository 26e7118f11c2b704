// What a measurement becomes: its spread, its price, and a line of JSON that says under which conditions it was made.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench_card.h"
#include "bench_figures.h"
#include "json/json.h"

namespace rose {

// Once to warm up (pages touched, threads awake), then `repeats` times. Progress goes to stderr.
Spread repeated(std::string_view what, int repeats, const std::function<double()>& measure);

class BenchReport {
 public:
  // Writes to `json_path`, one line a row, as soon as the row is there; an empty path: nowhere. Throws StartError where
  // the file cannot be written.
  explicit BenchReport(const std::string& json_path);

  // For work that no GPU does.
  void leave_out_card() { card_ = nullptr; }
  CardState card_state() const { return card_ ? card_->state() : CardState{}; }

  // `before`: the card just before the row was measured. Adds card, clocks, driver, commit, command line and date.
  void add(json::Object row, const CardState& before);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<Card> card_ = std::make_unique<Card>();
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
};

}  // namespace rose
