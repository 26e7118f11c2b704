#include "device/cuda/launch.cuh"

#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/gpu.h"
#include "device/place.h"

namespace rose::cuda {

void check_status(cudaError_t status, const char* what) {
  const Place place = current_place().get();
  CHECK(status == cudaSuccess,
        "{} in {}, layer {} of a step of {} rows: {}: {} (an earlier kernel's fault may show here; --no-graphs and "
        "CUDA_LAUNCH_BLOCKING=1 show it where it is)",
        what, place.operation, place.layer, place.rows, cudaGetErrorName(status), cudaGetErrorString(status));
}

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
