// What the launcher hands to the kernel of copy_pages.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct CopyPagesParams {
  const std::uint8_t* from[2];  // keys, values: [from_pages] pages of page_bytes
  std::uint8_t* to[2];          // [to_pages] pages; the same memory as `from`, or apart from it
  const int2* pairs;            // [count]: page in `from`, page in `to`
  std::int64_t page_bytes;      // a multiple of 16
  int count;
  int from_pages, to_pages;
};
void launch_copy_pages(const CopyPagesParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
