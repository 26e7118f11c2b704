// One token from each row of logits.
//
//   z = adjusted logits (bias, penalties, mask);   p = softmax(z / temperature)
//   keep the top_k largest; of those the smallest set whose probability reaches top_p; of those p >= min_p * max p
//   token = inverse of the kept distribution at random_unit(seed, counter)
//   temperature 0: token = the largest z, the lowest id on ties
//
// All filters use the p of the first line: nothing is renormalised between them, so where the top_k together do not
// reach top_p, all of them stay. Equal p: the lower id ranks first. The inverse runs over the kept tokens by rising id.
// The largest token always stays.
//
// Log-probabilities are log softmax of the logits as given: before adjustments, temperature and filters.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops {

inline constexpr int kTopLogprobsMax = 20;

// z[token] = (z[token] > 0 ? z[token] / repetition : z[token] * repetition) + add
struct LogitAdjustment {
  std::int32_t token = 0;
  float add = 0;
  float repetition = 1;
};

struct SampleRow {
  float temperature = 1;
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;  // 0: all
  std::uint64_t seed = 0;
  std::uint64_t counter = 0;           // number of the draw within its sequence
  std::int32_t slot = -1;              // the token is also written to last_tokens[slot]
  std::int32_t top_logprobs = -1;      // -1: none wanted; k: the token's own and the k largest
  std::int32_t mask_row = -1;          // row of `masks`; -1: none
  std::int32_t adjustments_begin = 0;  // range in `adjustments`
  std::int32_t adjustments_end = 0;
};

struct SampleInputs {
  Tensor logits;                    // [m, vocabulary] f32
  const SampleRow* rows = nullptr;  // m, in memory of the stream's device
  const LogitAdjustment* adjustments = nullptr;
  Tensor masks;  // [masks, ceil(vocabulary / 32)] i32 bits, 1 = allowed; or empty
};

struct SampleOutputs {
  Tensor tokens;        // [m] i32
  Tensor logprobs;      // [m] f32
  Tensor top_tokens;    // [m, kTopLogprobsMax] i32, falling probability
  Tensor top_logprobs;  // [m, kTopLogprobsMax] f32
  Tensor last_tokens;   // [slots] i32
};

// A row whose logits hold a NaN yields token -1 (the engine fails that sequence alone). A mask that allows nothing is
// our bug.
void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out);

namespace ref {
void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out);
}

}  // namespace rose::ops
