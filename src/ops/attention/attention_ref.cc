#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/rows.h"

namespace rose::ops::ref {
namespace {

double at(const Tensor& tensor, std::int64_t index) {
  if (tensor.dtype() == DType::kF32) return static_cast<const float*>(tensor.raw())[index];
  if (tensor.dtype() == DType::kF8E4M3) return to_float(static_cast<const F8E4M3*>(tensor.raw())[index]);
  return to_float(static_cast<const Bf16*>(tensor.raw())[index]);
}

// One query head of one row: position `position` of sequence `s`.
std::vector<double> attend(const Tensor& q, std::int64_t row, std::int64_t head, const KvLayer& kv,
                           const AttentionPlan& plan, int s, std::int64_t position, double sink, double scale) {
  const std::int64_t head_dim = q.size(2);
  const std::int64_t kv_head = head / (q.size(1) / kv.kv_heads());
  const std::int64_t first = plan.window > 0 ? std::max<std::int64_t>(0, position - plan.window + 1) : 0;
  const auto element_of = [&](std::int64_t p) {
    const std::int64_t entry = p / kv.page_size - plan.first_pages.as<std::int32_t>()[s];
    const std::int64_t page = plan.page_table.row<std::int32_t>(s)[entry];
    return kv.element(page * kv.page_size + p % kv.page_size, kv_head);
  };

  std::vector<double> scores;
  double maximum = sink;
  for (std::int64_t p = first; p <= position; ++p) {
    double dot = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      dot += at(q, (row * q.size(1) + head) * head_dim + d) * at(kv.keys, element_of(p) + d);
    }
    scores.push_back(scale * dot);
    maximum = std::max(maximum, scores.back());
  }
  double total = std::exp(sink - maximum);
  for (const double score : scores) total += std::exp(score - maximum);
  std::vector<double> result(static_cast<std::size_t>(head_dim), 0.0);
  for (std::int64_t p = first; p <= position; ++p) {
    const double probability = std::exp(scores[static_cast<std::size_t>(p - first)] - maximum) / total;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      result[static_cast<std::size_t>(d)] += probability * at(kv.values, element_of(p) + d);
    }
  }
  return result;
}

}  // namespace

void attention(const Stream& stream, const Tensor& q, const KvLayer& kv, const AttentionPlan& plan, const Tensor& sinks,
               float scale, const Tensor& out) {
  const std::int64_t heads = q.size(1);
  const auto* offsets = plan.row_offsets.as<std::int32_t>();
  const auto one_row = [&](int s, std::int64_t row) {
    const std::int64_t position = plan.context_lengths.as<std::int32_t>()[s] - offsets[s + 1] + row;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::vector<double> result = attend(q, row, head, kv, plan, s, position, at(sinks, head), scale);
      write_row(out, row, head * q.size(2), q.size(2), result.data());
    }
  };
  stream.parallel_for(static_cast<std::size_t>(plan.rows), 1, [&](std::size_t begin, std::size_t end) {
    int s = 0;
    for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end); ++row) {
      while (offsets[s + 1] <= row) ++s;
      one_row(s, row);
    }
  });
}

}  // namespace rose::ops::ref
