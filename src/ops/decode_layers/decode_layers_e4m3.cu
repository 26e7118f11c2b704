#include "ops/decode_layers/decode_layers_sm90.cuh"

namespace rose::ops::cuda {

// Of both instances this one needs as much as the other: all registers, and the same shared memory.
bool decode_layers_fit() {
  constexpr int kBytes = sizeof(DecodeLayersShared);
  int device = 0, cooperative = 0, blocks = 0;
  const auto kernel = &decode_layers_kernel<true>;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device) == cudaSuccess &&
         cooperative != 0 &&
         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess &&
         cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, DecodeLayersKernel::kThreads, kBytes) ==
             cudaSuccess &&
         blocks >= 1;
}

template void launch_decode_layers<true>(const DecodeLayersParams&, int, cudaStream_t);

}  // namespace rose::ops::cuda
