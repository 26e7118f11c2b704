#include "ops/experts/experts_prefill_sm90.cuh"

template void rose::ops::cuda::launch_expert_product<rose::ops::cuda::ExpertStage::kGateUp>(const ExpertProduct&, int,
                                                                                            cudaStream_t);
