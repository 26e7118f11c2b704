// A decoder decides how many tokens a step may bring a sequence: plain sampling one, a drafting decoder up to 1 + k.
//
// The scheduler gives a step the last token and k drafts, and asks for logits of all 1 + k rows. Each row is sampled by
// the rules of the request, row i with the counter it would have had without drafts; what was sampled decides how many
// drafts were right. So every decoder that accepts by matching gives exactly the tokens of plain sampling, only faster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace rose {

// One per sequence; lives in the engine's loop thread.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Most drafts a step. 0: never drafts, so the next step need not wait for the tokens of this one.
  virtual int drafts_max() const = 0;
  // Appends up to `count_max` guesses of what follows `tokens` (prompt and generated so far).
  virtual void propose(std::span<const std::int32_t> tokens, int count_max, std::vector<std::int32_t>& drafts) = 0;
  // sampled[0] follows the last token, sampled[i] follows drafts[i - 1]. How many of `sampled` the sequence takes: 1 to
  // drafts.size() + 1.
  virtual int accept(std::span<const std::int32_t> drafts, std::span<const std::int32_t> sampled) = 0;
};

using DecoderFactory = std::function<std::unique_ptr<Decoder>()>;

// Sampled tokens up to and with the first that differs from its draft. A row without a token (-1: its logits were not
// numbers) ends the match as any other difference does.
inline int accept_matching(std::span<const std::int32_t> drafts, std::span<const std::int32_t> sampled) {
  std::size_t taken = 1;
  while (taken <= drafts.size() && taken < sampled.size() && drafts[taken - 1] == sampled[taken - 1]) ++taken;
  return static_cast<int>(taken);
}

// Plain sampling: one token a step.
class SamplingDecoder : public Decoder {
 public:
  int drafts_max() const override { return 0; }
  void propose(std::span<const std::int32_t>, int, std::vector<std::int32_t>&) override {}
  int accept(std::span<const std::int32_t>, std::span<const std::int32_t>) override { return 1; }
};

}  // namespace rose
