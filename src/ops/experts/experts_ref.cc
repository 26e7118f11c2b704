#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/experts/experts.h"
#include "ops/rows.h"

namespace rose::ops::ref {
namespace {

double swiglu(double gate, double up, double limit) {
  gate = std::isnan(gate) ? gate : std::min(gate, limit);  // no lower clamp
  up = std::isnan(up) ? up : std::clamp(up, -limit, limit);
  return gate / (1 + std::exp(-static_cast<double>(kSwigluAlpha) * gate)) * (up + 1);
}

// W[expert] . x + bias
std::vector<double> apply(const Weight& weight, std::int64_t expert, const std::vector<double>& x) {
  std::vector<double> y(static_cast<std::size_t>(weight.out));
  std::vector<float> w(static_cast<std::size_t>(weight.in));
  for (std::int64_t o = 0; o < weight.out; ++o) {
    decode_row(weight, expert, o, w.data());
    double sum = bias_at(weight.bias, expert * weight.out + o);
    for (std::size_t i = 0; i < w.size(); ++i) sum += static_cast<double>(w[i]) * x[i];
    y[static_cast<std::size_t>(o)] = sum;
  }
  return y;
}

}  // namespace

void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& y) {
  const std::int64_t hidden = x.size(1);
  const auto one_row = [&](std::int64_t r) {
    std::vector<float> row(static_cast<std::size_t>(hidden));
    read_row(x, r, 0, hidden, row.data());
    const std::vector<double> in(row.begin(), row.end());
    std::vector<double> sum(static_cast<std::size_t>(hidden), 0.0);
    for (std::int64_t k = 0; k < routing.experts.size(1); ++k) {
      const std::int64_t expert = routing.experts.row<std::int32_t>(r)[k] - weights.first_expert;
      if (expert < 0 || expert >= weights.gate_up.experts) continue;  // held elsewhere
      const std::vector<double> u = apply(weights.gate_up, expert, in);
      std::vector<double> a(u.size() / 2);
      for (std::size_t j = 0; j < a.size(); ++j) {
        a[j] = swiglu(u[2 * j], u[2 * j + 1], static_cast<double>(swiglu_limit));
      }
      const std::vector<double> d = apply(weights.down, expert, a);
      const double w = static_cast<double>(routing.weights.row<float>(r)[k]);
      for (std::size_t h = 0; h < sum.size(); ++h) sum[h] += w * d[h];
    }
    write_row(y, r, 0, hidden, sum.data());
  };
  stream.parallel_for(static_cast<std::size_t>(x.size(0)), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) one_row(static_cast<std::int64_t>(r));
  });
}

}  // namespace rose::ops::ref
