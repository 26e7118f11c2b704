#include "ops/attention/attention_prefill_sm90.cuh"

template void rose::ops::cuda::launch_attention_prefill<true>(const AttentionParams&, int, cudaStream_t);
