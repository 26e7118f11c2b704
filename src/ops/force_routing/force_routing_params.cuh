// What the launcher hands to the kernel of force_routing.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/force_routing/pattern.h"

namespace rose::ops::cuda {

struct ForceRoutingParams {
  static constexpr int kThreads = 128;

  RoutingPattern pattern;
  std::int32_t* chosen;  // [rows, k], rows chosen_stride apart
  std::int64_t chosen_stride;
  std::uint32_t layer;
  int rows, k;
};
void launch_force_routing(const ForceRoutingParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
