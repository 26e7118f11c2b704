// A golden file of tests/golden/model: a recipe of a random checkpoint, and logits that transformers computed for it.
// For tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/testing/generated_checkpoint.h"
#include "weights/source.h"

namespace rose::testing {

struct GoldenRow {
  int row = 0;
  std::vector<int> columns;
  std::vector<double> logits;  // at columns
};

struct GoldenRun {
  std::string name;
  std::vector<std::int32_t> tokens;
  int first_position = 0;  // of tokens[0], for RoPE
  double largest = 0;      // |logit| over all columns of all rows
  std::vector<GoldenRow> rows;

  std::vector<int> row_indices() const {
    std::vector<int> indices;
    for (const GoldenRow& row : rows) indices.push_back(row.row);
    return indices;
  }

  // The run cut to its first `count` tokens: attention is causal, so the rows left have the same logits.
  GoldenRun first(int count) const {
    GoldenRun cut = *this;
    if (static_cast<std::size_t>(count) >= tokens.size()) return cut;
    cut.tokens.resize(static_cast<std::size_t>(count));
    std::erase_if(cut.rows, [&](const GoldenRow& row) { return row.row >= count; });
    CHECK(!cut.rows.empty(), "{}: no row below {}", name, count);
    cut.name = fmt::format("{} tokens", cut.tokens.size());
    return cut;
  }
};

// The bound of every comparison, as a share of the largest |logit|.
inline constexpr double kLogitBound = 1e-4;

// Largest |logit - golden|, as a share of the run's largest |logit|; infinite where a logit is no number.
inline double largest_difference(const GoldenRun& run, const std::vector<std::vector<float>>& logits) {
  CHECK(logits.size() == run.rows.size(), "{} rows of logits for {}", logits.size(), run.rows.size());
  double worst = 0;
  for (std::size_t r = 0; r < run.rows.size(); ++r) {
    for (std::size_t i = 0; i < run.rows[r].columns.size(); ++i) {
      const double found = logits[r].at(static_cast<std::size_t>(run.rows[r].columns[i]));
      if (!std::isfinite(found)) return INFINITY;
      worst = std::max(worst, std::abs(found - run.rows[r].logits[i]));
    }
  }
  return worst / run.largest;
}

// One line of the comparison table.
inline void print_comparison(std::string_view model, std::string_view what, double difference) {
  std::fputs(fmt::format("  {:<10} {:<58} {:9.2e} of the largest |logit|\n", model, what, difference).c_str(), stdout);
}

class GoldenModel {
 public:
  // `name` of tests/golden/model/<name>.json; `source_root` is the repository.
  GoldenModel(const std::string& source_root, const std::string& name)
      : name_(name), file_(read_json_file(source_root + "/tests/golden/model/" + name + ".json")) {
    const auto vocabulary = file_.at("config").at("vocab_size").to_number<std::uint64_t>();
    for (const json::Value& value : file_.at("runs").as_array()) {
      GoldenRun run;
      run.name = text_of(value.at("name"));
      run.tokens = random_tokens(value.at("seed").to_number<std::uint64_t>(),
                                 value.at("tokens").to_number<std::size_t>(), vocabulary);
      const json::Value* first = value.as_object().if_contains("first_position");
      run.first_position = first == nullptr ? 0 : first->to_number<int>();
      run.largest = value.at("largest").to_number<double>();
      for (const json::Value& row : value.at("rows").as_array()) {
        GoldenRow golden{.row = row.at("row").to_number<int>(), .columns = {}, .logits = {}};
        for (const json::Value& column : row.at("columns").as_array())
          golden.columns.push_back(column.to_number<int>());
        for (const json::Value& logit : row.at("logits").as_array()) golden.logits.push_back(logit.to_number<double>());
        CHECK(golden.columns.size() == golden.logits.size() && !golden.columns.empty(), "{} row {}", name, golden.row);
        run.rows.push_back(std::move(golden));
      }
      runs_.push_back(std::move(run));
    }
  }

  const std::string& name() const { return name_; }
  const std::vector<GoldenRun>& runs() const { return runs_; }
  const json::Value& config() const { return file_.at("config"); }

  // Changes to config.json and to entries of the recipe (with their checksums gone), to see that they matter.
  struct Variant {
    std::function<void(json::Object& config)> config = [](json::Object&) {};
    std::function<bool(json::Object& entry)> tensor = [](json::Object&) { return false; };  // true: changed
  };

  std::string write(const std::string& folder) const { return write(folder, Variant()); }
  std::string write(const std::string& folder, const Variant& variant) const {
    json::Value config = file_.at("config");
    variant.config(config.as_object());
    json::Array tensors = file_.at("tensors").as_array();
    for (json::Value& entry : tensors) {
      if (variant.tensor(entry.as_object())) entry.as_object().erase("checksum");
    }
    write_checkpoint(folder, config, file_.at("seed").to_number<std::uint64_t>(), tensors);
    return folder;
  }

 private:
  std::string name_;
  json::Value file_;
  std::vector<GoldenRun> runs_;
};

}  // namespace rose::testing
