#include "ops/linear/linear_fp8_sm90.cuh"

namespace rose::ops::cuda {

template void launch_linear_fp8<LinearFp8Config<160>>(const LinearFp8Params&, int, cudaStream_t);

}  // namespace rose::ops::cuda
