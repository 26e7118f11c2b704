#include <cmath>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/route/route.h"

namespace rose::ops::ref {
namespace {

// A NaN comes first: it then takes part in the weights, and the row's result is NaN rather than silently wrong.
bool before(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

void choose(const float* logits, std::int32_t experts, std::int64_t per_token, std::int32_t* chosen, float* weights) {
  std::int64_t filled = 0;
  for (std::int32_t e = 0; e < experts; ++e) {
    std::int64_t place = filled;  // after equal logits: the lowest index wins
    while (place > 0 && before(logits[e], logits[chosen[place - 1]])) --place;
    if (place == per_token) continue;
    if (filled < per_token) ++filled;
    for (std::int64_t k = filled - 1; k > place; --k) chosen[k] = chosen[k - 1];
    chosen[place] = e;
  }
  const auto largest = static_cast<double>(logits[chosen[0]]);
  double sum = 0;
  for (std::int64_t k = 0; k < per_token; ++k) sum += std::exp(static_cast<double>(logits[chosen[k]]) - largest);
  for (std::int64_t k = 0; k < per_token; ++k) {
    weights[k] = static_cast<float>(std::exp(static_cast<double>(logits[chosen[k]]) - largest) / sum);
  }
}

}  // namespace

void choose_experts(const Stream&, const Tensor& logits, Routing& routing) {
  for (std::int64_t r = 0; r < logits.size(0); ++r) {
    choose(logits.row<float>(r), static_cast<std::int32_t>(logits.size(1)), routing.experts.size(1),
           routing.experts.row<std::int32_t>(r), routing.weights.row<float>(r));
  }
}

void route(const Stream& stream, const Tensor& x, const Weight& router, Routing& routing) {
  std::vector<float> values(static_cast<std::size_t>(x.size(0) * router.out));
  const Tensor logits(values.data(), DType::kF32, x.device(), {x.size(0), router.out});
  linear(stream, x, router, logits);
  choose_experts(stream, logits, routing);
}

}  // namespace rose::ops::ref
