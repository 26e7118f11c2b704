// The CUDA side of random_fill.h; arguments have been checked.
#pragma once

#include "device/stream.h"
#include "weights/random_fill/values.h"

namespace rose::cuda {

void random_fill(const Stream& stream, const RandomRegion& region);

}  // namespace rose::cuda
