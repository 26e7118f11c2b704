// What sampling one sequence needs to know of it: its options, its seed, and which tokens it has seen.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "decode/decoding_options.h"
#include "ops/sample/sample.h"

namespace rose {

class SamplingState {
 public:
  // `options` must outlive the state.
  SamplingState(const DecodingOptions& options, std::uint64_t seed, std::span<const std::int32_t> prompt);

  // The sequence took this token.
  void advance(std::int32_t token);

  // Whether the next row depends on the tokens before it, so that they must be known when the step is built. Stop ids
  // masked by min_tokens depend on their number alone.
  bool needs_tokens() const { return penalties_; }

  // Adjustments that a row may take, at most; never more than the vocabulary has tokens.
  int adjustments_max() const { return static_cast<int>(entries_.size()); }

  // The row that draws generated token number `number` (0: the first). Its adjustments are appended, one a token.
  ops::SampleRow row(int number, std::vector<ops::LogitAdjustment>& adjustments) const;

  const DecodingOptions& options() const { return *options_; }

 private:
  struct Entry {
    std::int32_t token = 0;
    float bias = 0;
    int generated = 0;  // how often
    bool seen = false;  // in the prompt or generated
    bool stops = false;
  };
  Entry& entry(std::int32_t token);

  const DecodingOptions* options_;
  std::uint64_t seed_;
  bool penalties_ = false;
  std::vector<Entry> entries_;  // only tokens that may need an adjustment, in order of first sight
  std::unordered_map<std::int32_t, std::size_t> index_;
};

}  // namespace rose
