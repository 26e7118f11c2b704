// Warpgroup matrix instructions (PTX ISA, wgmma.mma_async): D[64, N] (+)= A[64, K] . B[K, N], f32 accumulators spread
// over the four warps. Thread t of the warpgroup holds, for every 8 columns c, d[4c'..4c'+3] = rows (t/32)*16 +
// (t%32)/4 and +8, columns 8c' + (t%4)*2 and +1.
//
//   WgmmaBf16<N>::ss(d, a, b, accumulate)   A a shared-memory descriptor, as B always is; K = 16
//   WgmmaBf16<N>::rs(d, a, b, accumulate)   A four registers a thread
//   WgmmaE4m3<N>::ss, rs                    the same in e4m3; K = 32
//
// accumulate 0: D = A . B. The widths that there are: tools/generate_wgmma.py.
#pragma once

#include <cstdint>

#include "ops/ptx/wgmma_widths.cuh"

namespace rose::ptx {

// A K-major tile of 128-byte rows under the 128-byte swizzle: 8 rows make an atom of 1024 bytes. Moving along K inside
// the row adds bytes / 16 to the descriptor.
__device__ inline std::uint64_t swizzle128_descriptor(std::uint32_t shared_address) {
  return static_cast<std::uint64_t>((shared_address & 0x3ffff) >> 4) | (std::uint64_t{1} << 16) |
         (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace rose::ptx
