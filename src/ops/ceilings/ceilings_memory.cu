// nothing: a launch and no more;   read: every 16 bytes once, combined so that no load can be left out;
// copy: to[i] = from[i];   fill: random numbers
//
// Bound: the memory's bytes; an H200 gave 4.57 TB/s to read and 3.98 TB/s to copy (bytes read plus bytes written).
//
// Mapping: eight blocks of 256 threads on each SM walk the buffer together, eight loads of 16 bytes in flight a thread:
// 132 SMs x 2048 threads x 128 bytes = 34 MB, far more than the 3 MB that a microsecond of latency asks for.
#include "device/cuda/launch.cuh"
#include "ops/ceilings/ceilings_params.cuh"

namespace rose::ops::cuda {
namespace {

using C = CeilingsConfig;

__device__ uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// Visits the buffer in pieces of kLoadsInFlight vectors a thread, neighbours in neighbouring threads.
template <class Visit>
__device__ void walk(std::size_t vectors, const Visit& visit) {
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * C::kThreads;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * C::kThreads + threadIdx.x;
  for (std::size_t at = first; at < vectors; at += threads * C::kLoadsInFlight) visit(at, threads);
}

__global__ void __launch_bounds__(C::kThreads) read_kernel(const uint4* from, std::size_t vectors, unsigned* sink) {
  unsigned bits = 0;
  walk(vectors, [&](std::size_t at, std::size_t threads) {
    uint4 v[C::kLoadsInFlight];
#pragma unroll
    for (int i = 0; i < C::kLoadsInFlight; ++i) {
      v[i] = at + i * threads < vectors ? load_once(from + at + i * threads) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < C::kLoadsInFlight; ++i) bits += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  });
  if (bits == 0x9e3779b9u) *sink = bits;
}

__global__ void __launch_bounds__(C::kThreads) copy_kernel(const uint4* from, uint4* to, std::size_t vectors) {
  walk(vectors, [&](std::size_t at, std::size_t threads) {
    uint4 v[C::kLoadsInFlight];
#pragma unroll
    for (int i = 0; i < C::kLoadsInFlight; ++i) {
      if (at + i * threads < vectors) v[i] = load_once(from + at + i * threads);
    }
#pragma unroll
    for (int i = 0; i < C::kLoadsInFlight; ++i) {
      if (at + i * threads < vectors) __stcs(to + at + i * threads, v[i]);
    }
  });
}

// SplitMix64's finaliser (base/random.h).
__device__ std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <FillKind kKind>
__global__ void __launch_bounds__(C::kThreads) fill_kernel(const FillParams params) {
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * C::kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * C::kThreads + threadIdx.x; i < params.count;
       i += threads) {
    const auto bits = static_cast<std::uint32_t>(mix64(params.seed ^ mix64(i)) >> 32);
    if constexpr (kKind == FillKind::kBytes) {
      const auto range = static_cast<std::uint32_t>(params.high - params.low + 1);
      static_cast<std::uint8_t*>(params.to)[i] = static_cast<std::uint8_t>(params.low + __umulhi(bits, range));
    } else {
      const float value = (static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f) * params.size;
      if constexpr (kKind == FillKind::kF32) {
        static_cast<float*>(params.to)[i] = value;
      } else {  // the bits cut off are random: no rounding is needed
        static_cast<std::uint16_t*>(params.to)[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
      }
    }
  }
}

__global__ void nothing_kernel() {}

rose::cuda::LaunchShape shape_of(int blocks) {
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(C::kThreads)};
}

}  // namespace

void launch_fill(FillKind kind, const FillParams& params, int blocks, cudaStream_t stream) {
  switch (kind) {
    case FillKind::kBf16:
      return rose::cuda::launch(&fill_kernel<FillKind::kBf16>, "fill bf16", shape_of(blocks), stream, params);
    case FillKind::kF32:
      return rose::cuda::launch(&fill_kernel<FillKind::kF32>, "fill f32", shape_of(blocks), stream, params);
    case FillKind::kBytes:
      return rose::cuda::launch(&fill_kernel<FillKind::kBytes>, "fill bytes", shape_of(blocks), stream, params);
  }
}

void launch_nothing(int blocks, cudaStream_t stream) {
  rose::cuda::launch(&nothing_kernel, "nothing", {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(128)},
                     stream);
}

void launch_read(const uint4* from, std::size_t vectors, unsigned* sink, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&read_kernel, "read", shape_of(blocks), stream, from, vectors, sink);
}

void launch_copy(const uint4* from, uint4* to, std::size_t vectors, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&copy_kernel, "copy", shape_of(blocks), stream, from, to, vectors);
}

}  // namespace rose::ops::cuda
