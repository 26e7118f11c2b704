#include <type_traits>

#include "ops/attention/attention_prefill_e4m3_sm90.cuh"

// Units as attention_prefill.cu chooses them.
void rose::ops::cuda::launch_attention_prefill_e4m3(const AttentionParams& params, int blocks, cudaStream_t stream) {
  const auto launch = [&](auto scaled) {
    constexpr bool kScaled = decltype(scaled)::value;
    params.window > 0 ? launch_attention_prefill_e4m3_instance<64, kScaled>(params, blocks, stream)
                      : launch_attention_prefill_e4m3_instance<128, kScaled>(params, blocks, stream);
  };
  params.scale_log2 == 1 ? launch(std::true_type{}) : launch(std::false_type{});
}
