#include "ops/attention/attention_decode_sm90.cuh"

void rose::ops::cuda::launch_attention_decode(const AttentionParams& params, cudaStream_t stream) {
  launch_attention_decode_instance<DecodeConfig>(params, stream);
}
