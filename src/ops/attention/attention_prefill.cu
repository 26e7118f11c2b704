#include "ops/attention/attention_prefill_sm90.cuh"

void rose::ops::cuda::launch_attention_prefill(const AttentionParams& params, int blocks, cudaStream_t stream) {
  launch_attention_prefill_instance<PrefillConfig::kPolynomialEvery>(params, blocks, stream);
}
