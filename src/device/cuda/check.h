// Every CUDA call is checked: an error is sticky, so it ends the process with the call and where it stood.
#pragma once

#include <cuda_runtime.h>

#include "base/check.h"

#define CUDA_CHECK(call)                                                                                               \
  do {                                                                                                                 \
    const cudaError_t cuda_status_ = (call);                                                                           \
    if (cuda_status_ != cudaSuccess)                                                                                   \
      ::rose::check_failed(__FILE__, __LINE__, #call,                                                                  \
                           ::fmt::format("{}: {}", cudaGetErrorName(cuda_status_), cudaGetErrorString(cuda_status_))); \
  } while (false)
