// Arithmetic of measurements: spread and price.
#pragma once

#include <string>
#include <vector>

namespace rose {

// Nearest-rank percentiles of n >= 1 values.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int n = 0;
};
Spread spread_of(std::vector<double> values);

// Dollars for a million tokens at `tokens` in `seconds` on `gpus` of `gpu_hour_price` each.
double dollars_per_million(double tokens, double seconds, int gpus, double gpu_hour_price);

std::string cell(double seconds, double dollars);  // "0.239 s, $0.024"

}  // namespace rose
