// What the launcher hands to the kernel of random_fill.h.
#pragma once

#include <cuda_runtime.h>

#include "weights/random_fill/values.h"

namespace rose::cuda {

// Units are counted in 32 bits.
inline constexpr std::int64_t kRandomUnitsMax = std::int64_t{1} << 31;

// matrices * rows * units at most kRandomUnitsMax.
void launch_random_fill(const RandomRegion& region, int multiprocessors, cudaStream_t stream);

}  // namespace rose::cuda
