#include "device/cuda/launch.h"

#include <vector>

namespace rose::cuda {

int multiprocessors(const Stream& stream) {
  static const auto counts = [] {
    std::vector<int> by_ordinal;
    int devices = 0;
    CUDA_CHECK(cudaGetDeviceCount(&devices));
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
      int count = 0;
      CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal));
      by_ordinal.push_back(count);
    }
    return by_ordinal;
  }();
  return counts.at(static_cast<std::size_t>(stream.device().ordinal));
}

}  // namespace rose::cuda
