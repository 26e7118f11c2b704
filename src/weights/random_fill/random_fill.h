// to[m, r, u] = value(key, first + m * matrix_stride + r * row_stride + u)   (values.h)
#pragma once

#include "device/stream.h"
#include "weights/random_fill/values.h"

namespace rose {

// region.to is memory of the stream's device, for kCodes at a multiple of 16 bytes. The same bits on every device.
void random_fill(const Stream& stream, const RandomRegion& region);

}  // namespace rose
