// How blocks hand numbers to each other inside of a kernel: a packet is 32 bits and a tag that no packet in its place
// had before, written and read as one 64-bit word. A reader needs neither a barrier of the whole grid nor a fence: it
// reads until the tag is right, and has the number. Latency: one store and one load through L2.
//
// A place is used again one layer later. Nobody can write it while somebody still waits for what was there: to get
// there, a writer needs the residual of all blocks, and a block gives its share only after it has read everything else
// of its layer.
#pragma once

#include "ops/decode_layers/decode_layers_params.cuh"

namespace rose::ops::cuda {

__device__ inline void publish(DecodePacket* to, std::uint32_t value, std::uint32_t tag) {
  const DecodePacket packet = static_cast<DecodePacket>(tag) << 32 | value;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(packet) : "memory");
}
__device__ inline void publish(DecodePacket* to, float value, std::uint32_t tag) {
  publish(to, __float_as_uint(value), tag);
}

__device__ inline std::uint32_t tag_of(DecodePacket packet) { return static_cast<std::uint32_t>(packet >> 32); }

// kCount pairs of neighbouring packets, from wherever at(pair) says, by all threads together: take(turn, pair, first,
// second) is called once for each, by one of them, pair = thread + turn * kConsumers. All are in flight at once, and
// neighbours ask for neighbours.
template <int kCount, class At, class Take>
__device__ inline void gather_pairs(int thread, std::uint32_t tag, const At& at, const Take& take) {
  constexpr int kThreads = DecodeLayersKernel::kConsumers, kTurns = (kCount + kThreads - 1) / kThreads;
  std::uint32_t values[2 * kTurns];
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int pair = thread + i * kThreads;
      if (kCount % kThreads != 0 && pair >= kCount) continue;
      DecodePacket first, second;
      asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                   : "=l"(first), "=l"(second)
                   : "l"(at(pair))
                   : "memory");
      values[2 * i] = static_cast<std::uint32_t>(first), values[2 * i + 1] = static_cast<std::uint32_t>(second);
      complete = complete && tag_of(first) == tag && tag_of(second) == tag;
    }
  } while (!complete);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int pair = thread + i * kThreads;
    if (kCount % kThreads == 0 || pair < kCount) take(i, pair, values[2 * i], values[2 * i + 1]);
  }
}

// Single packets, by one thread.
template <int kCount, class At>
__device__ inline void await_single(const At& at, std::uint32_t tag, std::uint32_t (&values)[kCount]) {
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      DecodePacket packet;
      asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(packet) : "l"(at(i)) : "memory");
      values[i] = static_cast<std::uint32_t>(packet);
      complete = complete && tag_of(packet) == tag;
    }
  } while (!complete);
}

}  // namespace rose::ops::cuda
