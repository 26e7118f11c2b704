#include "ops/linear/linear_batch.cuh"

namespace rose::ops::cuda {

template void launch_linear_batch<LinearBatchConfig<64, 48>>(const LinearBatchParams&, cudaStream_t);
template void launch_linear_batch<LinearBatchConfig<128, 48>>(const LinearBatchParams&, cudaStream_t);
template int linear_batch_clusters<LinearBatchConfig<128, 48>>();

}  // namespace rose::ops::cuda
