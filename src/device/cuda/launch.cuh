// Launching a kernel: grid, block, dynamic shared memory, and the choice to start before the previous kernel has ended
// (programmatic dependent launch: the kernel itself waits with dependency_wait()). Free of fmt, which nvcc cannot
// compile.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace rose::cuda {

// Ends the process where a call failed.
void check_status(cudaError_t status, const char* what);

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  bool overlap_previous = false;
  unsigned cluster_blocks = 0;  // along x; 0: what the kernel was compiled for
  bool all_at_once = false;     // every block must run at the same time: they wait for each other
};

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const char* name, const LaunchShape& shape, cudaStream_t stream,
            Arguments&&... arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    check_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        name);
  }
  cudaLaunchAttribute attributes[3]{};
  unsigned count = 0;
  if (shape.overlap_previous) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster_blocks > 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster_blocks, 1, 1};
  }
  if (shape.all_at_once) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_status(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
               name);
}

}  // namespace rose::cuda
