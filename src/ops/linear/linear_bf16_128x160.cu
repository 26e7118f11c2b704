#include "ops/linear/linear_sm90.cuh"

template void rose::ops::cuda::launch_linear<rose::ops::cuda::LinearConfig<128, 160>>(const LinearParams&, int,
                                                                                      cudaStream_t);
