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

// The same without ordering memory: that two blocks run, or that products have read what they read. (A release becomes
// a fence of the whole GPU.)
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// 16 or 4 bytes to the same shared-memory address of block `rank` of the cluster, counted by the barrier there that
// lies at `barrier` here: who waits for it (barrier_wait_cluster) sees them.
__device__ inline void store_async_to_rank(std::uint32_t shared, std::uint32_t barrier, int rank, float a, float b,
                                           float c, float d) {
  asm volatile(
      "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [counter];\n}\n" ::"r"(
          shared),
      "r"(barrier), "r"(rank), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}
__device__ inline void store_async_to_rank(std::uint32_t shared, std::uint32_t barrier, int rank, float value) {
  asm volatile(
      "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, [counter];\n}\n" ::"r"(shared),
      "r"(barrier), "r"(rank), "f"(value)
      : "memory");
}

// Until the phase with this parity has completed; what other blocks of the cluster stored is visible then.
__device__ inline void barrier_wait_cluster(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nwaiting:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra waiting;\n}\n" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(parity)
      : "memory");
}

}  // namespace rose::ptx
