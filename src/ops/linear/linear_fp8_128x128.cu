#include "ops/linear/linear_fp8_sm90.cuh"

template void rose::ops::cuda::launch_linear_fp8<rose::ops::cuda::LinearFp8Config<128>>(const LinearFp8Params&, int,
                                                                                        cudaStream_t);
