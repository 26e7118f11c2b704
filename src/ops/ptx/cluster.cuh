// Thread block clusters: barriers among all their threads, and stores into another block's shared memory.
#pragma once

#include <cstdint>

namespace rose::ptx {

__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of the cluster that have not ended: arrive releases, wait acquires, also writes to other blocks' shared
// memory.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// 16 bytes to the same shared-memory address of block `rank` of the cluster.
__device__ inline void store_to_rank(std::uint32_t shared, int rank, float a, float b, float c, float d) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}\n" ::"r"(shared),
      "r"(rank), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}

// One arrival at the barrier at the same shared-memory address of block `rank` of the cluster.
__device__ inline void barrier_arrive_at_rank(std::uint64_t* barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}\n" ::"r"(
          static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(rank)
      : "memory");
}

}  // namespace rose::ptx
