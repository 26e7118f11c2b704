// Linear in the vocabulary: a full sort of 201,088 logits would take longer than all else in the step's tail. The
// filters each keep a prefix of the tokens in falling order, so the shortest of three prefixes is found by halving.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "ops/sample/sample.h"

namespace rose::ops::ref {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Candidate {
  float weight;  // exp((z - largest z) / temperature), so the largest is 1
  std::int32_t token;
};

// Falling weight, ties by rising token.
bool before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

struct Scratch {
  std::vector<float> adjusted;
  std::vector<Candidate> candidates;
};

// z of every token; false where a NaN makes the row worthless.
bool adjust(const SampleInputs& in, const SampleRow& row, const float* logits, std::vector<float>& z) {
  const std::int64_t vocabulary = in.logits.size(1);
  z.assign(logits, logits + vocabulary);
  for (std::int32_t a = row.adjustments_begin; a < row.adjustments_end; ++a) {
    const LogitAdjustment& adjustment = in.adjustments[a];
    CHECK(adjustment.token >= 0 && adjustment.token < vocabulary, "token {} of {}", adjustment.token, vocabulary);
    float& value = z[static_cast<std::size_t>(adjustment.token)];
    value = (value > 0 ? value / adjustment.repetition : value * adjustment.repetition) + adjustment.add;
  }
  if (row.mask_row >= 0) {
    CHECK(!in.masks.empty() && row.mask_row < in.masks.size(0), "mask row {}", row.mask_row);
    const auto* mask = in.masks.row<std::int32_t>(row.mask_row);
    bool any = false;
    for (std::int64_t t = 0; t < vocabulary; ++t) {
      const bool allowed = (static_cast<std::uint32_t>(mask[t / 32]) >> (t % 32) & 1u) != 0;
      if (!allowed) z[static_cast<std::size_t>(t)] = kNever;
      any = any || allowed;
    }
    CHECK(any, "mask row {} allows no token", row.mask_row);
  }
  bool nan = false;
  for (std::int64_t t = 0; t < vocabulary; ++t)
    nan |= std::isnan(logits[t]) || std::isnan(z[static_cast<std::size_t>(t)]);
  return !nan;
}

// First of the largest; -1 where nothing can be chosen (all -inf).
std::int32_t largest(const std::vector<float>& z) {
  const auto best = std::max_element(z.begin(), z.end());
  return *best == kNever ? -1 : static_cast<std::int32_t>(best - z.begin());
}

double sum_of(const Candidate* begin, const Candidate* end) {
  double sum = 0;
  for (; begin != end; ++begin) sum += static_cast<double>(begin->weight);
  return sum;
}

// Shortest prefix of the candidates in falling order whose weights sum to at least `target` (all, if they do not). The
// candidates are reordered so that the prefix comes first. Halving: each round looks at half of what is left.
std::size_t prefix_reaching(std::vector<Candidate>& candidates, std::size_t count, double target) {
  Candidate* const first = candidates.data();
  std::size_t low = 0;  // the first `low` are in, the rest from `high` on are out
  std::size_t high = count;
  double sum = 0;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    std::nth_element(first + low, first + middle, first + high, before);
    const double upper = sum_of(first + low, first + middle);
    if (sum + upper >= target) {
      high = middle;
    } else {
      low = middle;
      sum += upper;
    }
  }
  return high;
}

std::int32_t draw(const SampleRow& row, std::int32_t best, Scratch& scratch) {
  std::vector<float>& z = scratch.adjusted;  // becomes the weights
  const float top = z[static_cast<std::size_t>(best)];
  std::vector<Candidate>& candidates = scratch.candidates;
  candidates.clear();
  double total = 0;
  for (float& value : z) {
    // inf - inf: equally infinite logits are equally likely.
    value = value == top ? 1.0f : std::exp((value - top) / row.temperature);
    total += static_cast<double>(value);
  }
  // All weights below (1 - top_p) total / count together weigh less than what top_p leaves out, so none of them is
  // needed; half of that leaves room for rounding.
  const double spare = (1 - static_cast<double>(row.top_p)) * total / static_cast<double>(z.size());
  const float least = std::max({row.min_p, static_cast<float>(spare / 2), std::numeric_limits<float>::denorm_min()});
  for (std::size_t t = 0; t < z.size(); ++t) {
    if (z[t] == 1 || z[t] >= least) candidates.push_back({z[t], static_cast<std::int32_t>(t)});
  }
  std::size_t count = candidates.size();
  if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < count) {
    count = static_cast<std::size_t>(row.top_k);
    std::nth_element(candidates.begin(), candidates.begin() + row.top_k - 1, candidates.end(), before);
  }
  if (row.top_p < 1) count = prefix_reaching(candidates, count, static_cast<double>(row.top_p) * total);

  // In the order of token ids, which needs no sort when no filter moved anything.
  candidates.resize(std::max<std::size_t>(count, 1));
  const auto by_token = [](const Candidate& a, const Candidate& b) { return a.token < b.token; };
  if (!std::is_sorted(candidates.begin(), candidates.end(), by_token)) {
    std::sort(candidates.begin(), candidates.end(), by_token);
  }
  const double target = static_cast<double>(random_unit(row.seed, row.counter)) *
                        sum_of(candidates.data(), candidates.data() + candidates.size());
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += static_cast<double>(candidate.weight);
    if (sum > target) return candidate.token;
  }
  return candidates.back().token;
}

// log sum exp of finite or infinite logits.
double log_total(const float* logits, std::int64_t vocabulary) {
  const float top = *std::max_element(logits, logits + vocabulary);
  if (std::isinf(top)) return static_cast<double>(top);
  double sum = 0;
  for (std::int64_t t = 0; t < vocabulary; ++t) sum += static_cast<double>(std::exp(logits[t] - top));
  return static_cast<double>(top) + std::log(sum);
}

float logprob(float logit, double log_sum) {
  const auto value = static_cast<double>(logit);
  return value == log_sum ? 0.0f : static_cast<float>(value - log_sum);  // also for inf - inf
}

// The k largest logits, falling, ties by rising token: a short list kept in order while the logits pass once.
void top_logprobs(const float* logits, std::int64_t vocabulary, std::int32_t k, double log_sum, std::int32_t* tokens,
                  float* logprobs) {
  Candidate top[kTopLogprobsMax];
  std::int32_t filled = 0;
  for (std::int64_t t = 0; t < vocabulary && k > 0; ++t) {
    if (filled == k && !(logits[t] > top[k - 1].weight)) continue;
    std::int32_t place = filled < k ? filled++ : k - 1;
    for (; place > 0 && logits[t] > top[place - 1].weight; --place) top[place] = top[place - 1];
    top[place] = {logits[t], static_cast<std::int32_t>(t)};
  }
  for (std::int32_t i = 0; i < kTopLogprobsMax; ++i) {
    tokens[i] = i < filled ? top[i].token : -1;
    logprobs[i] = i < filled ? logprob(top[i].weight, log_sum) : kNever;
  }
}

void sample_row(const SampleInputs& in, std::int64_t r, Scratch& scratch, const SampleOutputs& out) {
  const SampleRow& row = in.rows[r];
  const float* logits = in.logits.row<float>(r);
  CHECK(row.temperature >= 0 && row.top_logprobs <= kTopLogprobsMax, "row {}: temperature {}, {} log-probabilities", r,
        row.temperature, row.top_logprobs);
  std::int32_t token = -1;
  if (adjust(in, row, logits, scratch.adjusted)) {
    token = largest(scratch.adjusted);
    if (token >= 0 && row.temperature > 0) token = draw(row, token, scratch);
  }
  out.tokens.as<std::int32_t>()[r] = token;
  if (row.slot >= 0 && !out.last_tokens.empty()) {
    CHECK(row.slot < out.last_tokens.size(0), "row {}: slot {} of {}", r, row.slot, out.last_tokens.size(0));
    out.last_tokens.as<std::int32_t>()[row.slot] = std::max(token, 0);
  }
  if (row.top_logprobs < 0) return;
  CHECK(!out.logprobs.empty(), "row {} wants log-probabilities", r);
  const std::int64_t vocabulary = in.logits.size(1);
  const double log_sum = token < 0 ? 0 : log_total(logits, vocabulary);
  out.logprobs.as<float>()[r] = token < 0 ? kNever : logprob(logits[token], log_sum);
  if (row.top_logprobs == 0) return;
  CHECK(!out.top_tokens.empty(), "row {} wants the largest log-probabilities", r);
  top_logprobs(logits, token < 0 ? 0 : vocabulary, row.top_logprobs, log_sum, out.top_tokens.row<std::int32_t>(r),
               out.top_logprobs.row<float>(r));
}

}  // namespace

void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out) {
  stream.parallel_for(static_cast<std::size_t>(in.logits.size(0)), 1, [&](std::size_t begin, std::size_t end) {
    thread_local Scratch scratch;
    for (std::size_t r = begin; r < end; ++r) sample_row(in, static_cast<std::int64_t>(r), scratch, out);
  });
}

}  // namespace rose::ops::ref
