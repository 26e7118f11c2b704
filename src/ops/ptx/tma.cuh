// Bulk tensor copies (TMA). The tensor map is a __grid_constant__ kernel parameter; coordinates are in elements,
// innermost first. Out-of-range elements read as zero and are not written.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/ptx/barrier.cuh"

namespace rose::ptx {

// How long lines should stay in L2: evict-first for what is read once, evict-last for what every block reads again.
inline constexpr std::uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr std::uint64_t kEvictLast = 0x14F0000000000000;

__device__ inline void tensor_map_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Without a map: `bytes` that lie together; addresses and bytes multiples of 16.
__device__ inline void bulk_load(void* shared, const void* global, int bytes, std::uint64_t* barrier,
                                 std::uint64_t policy = kEvictNormal) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

__device__ inline void tma_load_2d(const CUtensorMap* map, std::uint64_t* barrier, void* shared, int x, int y,
                                   std::uint64_t policy = kEvictNormal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

// Only as far as L2.
__device__ inline void tma_prefetch_2d(const CUtensorMap* map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}

__device__ inline void tma_load_3d(const CUtensorMap* map, std::uint64_t* barrier, void* shared, int x, int y, int z,
                                   std::uint64_t policy = kEvictNormal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "l"(policy)
      : "memory");
}

__device__ inline void tma_load_4d(const CUtensorMap* map, std::uint64_t* barrier, void* shared, int x, int y, int z,
                                   int w, std::uint64_t policy = kEvictNormal) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
      : "memory");
}

__device__ inline void tma_store_2d(const CUtensorMap* map, const void* shared, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(shared)), "r"(x), "r"(y)
               : "memory");
}
__device__ inline void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most kPending groups still read shared memory.
template <int kPending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace rose::ptx
