// Launching a kernel: grid, block, dynamic shared memory, and the choice to start before the previous kernel has ended
// (programmatic dependent launch: the kernel itself waits with dependency_wait()).
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/check.h"
#include "device/stream.h"

namespace rose::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  bool overlap_previous = false;
};

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, const Stream& stream, Arguments&&... arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)));
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native());
  config.attrs = &attribute;
  config.numAttrs = shape.overlap_previous ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

// Streaming multiprocessors of the stream's GPU.
int multiprocessors(const Stream& stream);

}  // namespace rose::cuda
