// What a launcher asks of the stream's GPU.
#pragma once

#include <cuda_runtime.h>

#include "device/stream.h"

namespace rose::cuda {

int multiprocessors(const Stream& stream);
inline cudaStream_t native_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace rose::cuda
