#include <type_traits>

#include "ops/attention/attention_prefill_sm90.cuh"

// A window of 128 and a tile's 24 tokens span three units of 64; long contexts take units of 128, whose larger products
// keep the tensor cores busier.
void rose::ops::cuda::launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream) {
  const auto launch = [&](auto scaled) {
    constexpr bool kScaled = decltype(scaled)::value;
    params.window > 0 ? launch_attention_prefill_instance<64, kScaled>(params, blocks, stream)
                      : launch_attention_prefill_instance<128, kScaled>(params, blocks, stream);
  };
  params.scale_log2 == 1 ? launch(std::true_type{}) : launch(std::false_type{});
}
