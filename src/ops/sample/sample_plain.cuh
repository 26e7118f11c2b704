// Which rows need neither a change of their logits nor an order among them, and how such a row weighs its tokens.
#pragma once

#include "ops/sample/sample_cluster.cuh"

namespace rose::ops::cuda {

// Of these sample_plain.cu takes care, of all others sample_sm90.cu: a graph launches both.
__device__ inline bool is_plain(const SampleParams& params, const SampleOptions& options) {
  const bool adjusts = options.adjustments_begin < options.adjustments_end && params.adjustments != nullptr;
  const bool masks = options.mask_row >= 0 && options.mask_row < params.mask_rows;
  const bool filters =
      options.top_p < 1 || options.min_p > 0 || (options.top_k > 0 && options.top_k < params.vocabulary);
  const bool divides_well = options.temperature > 0x1p-60f && options.temperature < 0x1p60f;
  return params.aligned && options.top_logprobs < 0 && !adjusts && !masks &&
         (options.temperature == 0 || (!filters && divides_well));
}

// How a token weighs beside one with the logit `top`, at least as large: exp((z - top) / temperature). Infinite logits
// are equally likely: the minimum turns inf - inf, a NaN, into 0.
struct GreedyWeigher {
  static constexpr bool kWeighs = false;
  __device__ float operator()(float, float) const { return 0; }
};
struct UnitWeigher {  // temperature 1
  static constexpr bool kWeighs = true;
  __device__ float operator()(float z, float top) const { return exp_below_zero(fminf(z - top, 0)); }
};
// The quotient comes from the reciprocal: a step of Newton's rounds it once, as a division does, and costs three
// instructions. exp(-64) is far below 2^-45, and -inf would make a NaN.
struct DividingWeigher {
  static constexpr bool kWeighs = true;
  float temperature, reciprocal;

  __device__ explicit DividingWeigher(float temperature) : temperature(temperature), reciprocal(1 / temperature) {}
  __device__ float operator()(float z, float top) const {
    const float depth = fmaxf(fminf(z - top, 0), -64 * temperature), quotient = __fmul_rn(depth, reciprocal);
    return exp_below_zero(__fmaf_rn(__fmaf_rn(-quotient, temperature, depth), reciprocal, quotient));
  }
};

// The sum over a warp of round(2^44 weight), of kAdds weights of 0 to 1 a lane, without a 64-bit number for each:
// adding 2^23 rounds to an integer and leaves it in the lowest bits, first of 2^21 weight, then of what that leaves
// over.
template <int kAdds>
class FixedSum {
 public:
  static_assert(kAdds * 32 <= 511, "that many rests of +-2^22 stay within 32 bits");

  __device__ void add(float weight) {
    const float high = __fmaf_rn(weight, 0x1p21f, 0x1p23f);
    const float rest = __fmaf_rn(high - 0x1p23f, -0x1p-21f, weight);
    high_ += __float_as_uint(high);
    low_ += __float_as_uint(__fmaf_rn(rest, 0x1p44f, 0x1.8p23f));
  }
  __device__ std::uint64_t total() const {
    const std::uint32_t high = __reduce_add_sync(kAllLanes, high_ - kAdds * 0x4b000000u);
    const std::int32_t low = __reduce_add_sync(kAllLanes, static_cast<std::int32_t>(low_ - kAdds * 0x4b400000u));
    return (static_cast<std::uint64_t>(high) << 23) + static_cast<std::uint64_t>(std::int64_t{low});
  }

 private:
  std::uint32_t high_ = 0, low_ = 0;
};

}  // namespace rose::ops::cuda
