#include "ops/attention/attention_decode_sm90.cuh"

void rose::ops::cuda::launch_attention_decode_e4m3(const AttentionParams& params, cudaStream_t stream) {
  launch_attention_decode_instance<DecodeE4m3Config>(params, stream);
}
