#include "ops/attention/attention_prefill_e4m3_sm90.cuh"

// Units as attention_prefill.cu chooses them.
void rose::ops::cuda::launch_attention_prefill_e4m3(const AttentionParams& params, int blocks, cudaStream_t stream) {
  params.window > 0 ? launch_attention_prefill_e4m3_instance<64>(params, blocks, stream)
                    : launch_attention_prefill_e4m3_instance<128>(params, blocks, stream);
}
