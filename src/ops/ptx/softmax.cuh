// The running softmax of attention over keys that come 16 at a time.
#pragma once

#include "ops/ptx/convert.cuh"

namespace rose::ptx {

// s: scores of 16 keys by eight heads, as the accumulator of m16n8 holds them: a lane has two heads, s[head] and
// s[head + 2]; afterwards 2^(scale (s - the running maximum)). factor: what sums and outputs so far are worth now.
__device__ inline void softmax_step(float (&s)[4], float scale, float (&maximum)[2], float (&sum)[2],
                                    float (&factor)[2]) {
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    float highest = fmaxf(s[head], s[head + 2]);
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
    highest = fmaxf(maximum[head], highest);
    // Nothing visible so far: keep the state, and every exponent at zero.
    const float safe = highest == -INFINITY ? 0.f : highest;
    factor[head] = exp2_fast((maximum[head] - safe) * scale);
    maximum[head] = highest;
    s[head] = exp2_fast((s[head] - safe) * scale);
    s[head + 2] = exp2_fast((s[head + 2] - safe) * scale);
    sum[head] = sum[head] * factor[head] + s[head] + s[head + 2];
  }
}

}  // namespace rose::ptx
