#include "decode/sampling/sampling_state.h"

#include <limits>

namespace rose {

SamplingState::SamplingState(const DecodingOptions& options, std::uint64_t seed, std::span<const std::int32_t> prompt)
    : options_(&options), seed_(seed) {
  const bool repeats = options.repetition_penalty != 1;
  penalties_ = repeats || options.presence_penalty != 0 || options.frequency_penalty != 0;
  for (const auto& [token, bias] : options.logit_bias) entry(token).bias = bias;  // the last of equal ids counts
  if (options.min_tokens > 0 && !options.ignore_stop) {
    for (const std::int32_t token : options.stop_tokens) entry(token).stops = true;
  }
  if (repeats) {
    for (const std::int32_t token : prompt) entry(token).seen = true;
  }
}

SamplingState::Entry& SamplingState::entry(std::int32_t token) {
  const auto [found, added] = index_.emplace(token, entries_.size());
  if (added) entries_.push_back({.token = token});
  return entries_[found->second];
}

void SamplingState::advance(std::int32_t token) {
  if (!penalties_) return;
  Entry& e = entry(token);
  ++e.generated;
  e.seen = true;
}

ops::SampleRow SamplingState::row(int number, std::vector<ops::LogitAdjustment>& adjustments) const {
  const DecodingOptions& o = *options_;
  ops::SampleRow row{.temperature = o.temperature, .top_p = o.top_p, .min_p = o.min_p, .top_k = o.top_k};
  row.seed = seed_;
  row.counter = static_cast<std::uint64_t>(number);
  row.top_logprobs = o.top_logprobs;
  row.adjustments_begin = static_cast<std::int32_t>(adjustments.size());
  for (const Entry& e : entries_) {
    ops::LogitAdjustment adjustment{.token = e.token, .add = e.bias};
    if (e.generated > 0) {
      adjustment.add -= o.presence_penalty + o.frequency_penalty * static_cast<float>(e.generated);
    }
    if (e.seen) adjustment.repetition = o.repetition_penalty;
    if (e.stops && number < o.min_tokens) adjustment.add = -std::numeric_limits<float>::infinity();
    if (adjustment.add != 0 || adjustment.repetition != 1) adjustments.push_back(adjustment);
  }
  row.adjustments_end = static_cast<std::int32_t>(adjustments.size());
  return row;
}

}  // namespace rose
