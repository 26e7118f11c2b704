#include "bench_figures.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace rose {

Spread spread_of(std::vector<double> values) {
  CHECK(!values.empty(), "the spread of no values");
  std::sort(values.begin(), values.end());
  const auto rank = [&](double share) {
    const auto at = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
    return values[static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0))];
  };
  return {.median = rank(0.5), .p10 = rank(0.1), .p90 = rank(0.9), .n = static_cast<int>(values.size())};
}

double dollars_per_million(double tokens, double seconds, int gpus, double gpu_hour_price) {
  return gpus * seconds * gpu_hour_price / 3600 / tokens * 1e6;
}

std::string cell(double seconds, double dollars) {
  return fmt::format("{:.{}f} s, ${:.3f}", seconds, seconds < 0.1 ? 4 : 3, dollars);
}

}  // namespace rose
