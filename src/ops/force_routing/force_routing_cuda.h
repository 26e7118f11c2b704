// The CUDA side of force_routing.h; arguments have been checked, the mode is not natural.
#pragma once

#include "ops/force_routing/force_routing.h"

namespace rose::ops::cuda {

void force_routing(const Stream& stream, const ForcedRouting& forced, int layer, Routing& routing);

}  // namespace rose::ops::cuda
