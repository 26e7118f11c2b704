// How far rows of logits are from what they should be, so that rows that a tied router sent elsewhere do not decide.
// For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace rose::testing {

// Median over rows of the root mean square of a row's differences, over that of everything expected.
class RowErrors {
 public:
  void add_row() { rows_.push_back({}); }
  void add(double found, double expected) {
    rows_.back() += (found - expected) * (found - expected);
    sizes_ += expected * expected;
    ++count_;
  }
  double median() {
    std::sort(rows_.begin(), rows_.end());
    const double columns = static_cast<double>(count_) / static_cast<double>(rows_.size());
    return std::sqrt(rows_[rows_.size() / 2] / columns / (sizes_ / static_cast<double>(count_)));
  }

 private:
  std::vector<double> rows_;
  double sizes_ = 0;
  std::size_t count_ = 0;
};

inline double median_error(const std::vector<std::vector<float>>& found,
                           const std::vector<std::vector<float>>& expected) {
  RowErrors errors;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    errors.add_row();
    for (std::size_t i = 0; i < expected[r].size(); ++i) errors.add(found.at(r).at(i), expected[r][i]);
  }
  return errors.median();
}

}  // namespace rose::testing
