// Shared-memory barriers that count arrivals and bytes (mbarrier), named barriers between warps, and fences.
#pragma once

#include <cstdint>

namespace rose::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
// Makes initialised barriers visible to the copy engine (and to the cluster).
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive_expect(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// A warp's arrival, behind a __syncwarp(): one lane arrives for all, and the __syncwarp orders what the others have
// read and written before. compute-sanitizer's racecheck does not follow that: in a build for it every lane arrives.
#ifdef ROSE_RACECHECK
inline constexpr int kWarpArrivals = 32;
__device__ inline void barrier_arrive_warp(std::uint64_t* barrier) { barrier_arrive(barrier); }
__device__ inline void barrier_arrive_warp(std::uint64_t* barrier, int arrivals) { barrier_arrive(barrier, arrivals); }
#else
inline constexpr int kWarpArrivals = 1;
__device__ inline void barrier_arrive_warp(std::uint64_t* barrier) {
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
__device__ inline void barrier_arrive_warp(std::uint64_t* barrier, int arrivals) {
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier, arrivals);
}
#endif
// Where one warp arrives for `warps` warps, behind a barrier among them, the others arrive in a build for racecheck.
#ifdef ROSE_RACECHECK
__device__ constexpr int arrivals_for_warps(int warps) { return warps * kWarpArrivals; }
__device__ inline void barrier_arrive_other_warp(std::uint64_t* barrier) { barrier_arrive(barrier); }
#else
__device__ constexpr int arrivals_for_warps(int) { return kWarpArrivals; }
__device__ inline void barrier_arrive_other_warp(std::uint64_t*) {}
#endif
// Waits until the phase with this parity has completed.
__device__ inline void barrier_wait(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nwaiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra waiting;\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Has it completed?
__device__ inline bool barrier_passed(std::uint64_t* barrier, int parity) {
  std::uint32_t passed;
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}\n"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}

// Barrier `id` (1..15; 0 is __syncthreads) among `threads` threads.
__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Ordinary shared-memory writes become visible to the tensor cores and the copy engine.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int kRegisters>
__device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic dependent launch: wait for the kernel before this one, let the next one start its prologue.
__device__ inline void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void dependents_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// One lane of a converged warp.
__device__ inline bool elect_one() {
  std::uint32_t elected = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(elected));
  return elected != 0;
}

}  // namespace rose::ptx
