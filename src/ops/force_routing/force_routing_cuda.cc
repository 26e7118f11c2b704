#include "ops/force_routing/force_routing_cuda.h"

#include <limits>

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "ops/force_routing/force_routing_params.cuh"

namespace rose::ops::cuda {

void force_routing(const Stream& stream, const ForcedRouting& forced, int layer, Routing& routing) {
  ForceRoutingParams params{};
  params.pattern = forced.pattern();
  params.chosen = routing.experts.as<std::int32_t>();
  params.chosen_stride = routing.experts.stride(0);
  params.layer = static_cast<std::uint32_t>(layer);
  CHECK(routing.experts.size(0) <= std::numeric_limits<std::int32_t>::max() - ForceRoutingParams::kThreads, "{}",
        routing.experts.describe());
  params.rows = static_cast<int>(routing.experts.size(0));
  params.k = static_cast<int>(routing.experts.size(1));
  if (params.rows == 0) return;
  launch_force_routing(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
