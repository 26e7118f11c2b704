// to[pairs[i].y] = from[pairs[i].x], page by page, in the order of i
//
// Bound: bytes. A page of 32 positions of 8 heads is 32 KB of keys and 32 KB of values.
//
// Mapping: a thread owns the same 16 bytes of every page and goes through the pairs in order, so a page that one pair
// wrote and a later one reads needs no synchronisation: both are this thread's. To have several loads in flight it
// takes kBatch pairs at a time, and where a pair reads what an earlier one of the batch writes, hands the value on in
// registers. A batch is two trips to memory (about 1.2 us) for kBatch * 64 KB: 0.4 TB/s each way, above NVLink's rate.
#include "device/cuda/launch.cuh"
#include "ops/copy_pages/copy_pages_params.cuh"
#include "ops/ptx/barrier.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBatch = 8;

__global__ void __launch_bounds__(kThreads) copy_pages_kernel(const __grid_constant__ CopyPagesParams params) {
  ptx::dependency_wait();
  const std::int64_t offset = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 16;
  if (offset < params.page_bytes) {
    const std::uint8_t* from = (blockIdx.y == 0 ? params.from[0] : params.from[1]) + offset;
    std::uint8_t* to = (blockIdx.y == 0 ? params.to[0] : params.to[1]) + offset;
    for (int first = 0; first < params.count; first += kBatch) {
      const uint4* sources[kBatch];
      uint4* targets[kBatch];
      uint4 values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        int2 pair = {-1, -1};
        if (first + i < params.count) pair = params.pairs[first + i];
        const bool known = pair.x >= 0 && pair.x < params.from_pages && pair.y >= 0 && pair.y < params.to_pages;
        sources[i] = known ? reinterpret_cast<const uint4*>(from + pair.x * params.page_bytes) : nullptr;
        targets[i] = known ? reinterpret_cast<uint4*>(to + pair.y * params.page_bytes) : nullptr;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        values[i] = {0, 0, 0, 0};
        if (sources[i] != nullptr) values[i] = *sources[i];
      }
#pragma unroll
      for (int i = 1; i < kBatch; ++i) {
#pragma unroll
        for (int earlier = 0; earlier < i; ++earlier) {  // the last writer before i
          if (sources[i] != nullptr && targets[earlier] == sources[i]) values[i] = values[earlier];
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (targets[i] != nullptr) *targets[i] = values[i];
      }
    }
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_copy_pages(const CopyPagesParams& params, cudaStream_t stream) {
  const std::int64_t units = params.page_bytes / 16;
  rose::cuda::launch(&copy_pages_kernel, "copy_pages",
                     {.grid = dim3(static_cast<unsigned>((units + kThreads - 1) / kThreads), 2),
                      .block = dim3(kThreads),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
