// The k largest of a row's logits (NaN first, ties to the lowest index), and softmax over those k, by one warp.
#pragma once

#include <cstdint>

namespace rose::ptx {

constexpr int kChoices = 256;               // at most
constexpr int kHeldLogits = kChoices / 32;  // of a lane: experts lane, 32 + lane, ..
constexpr unsigned kNanKey = 0xffffffffu;

// Rises with the logit; equal for both zeros; above 0 for every logit, so that 0 means struck out.
__device__ inline unsigned key_of(float logit) {
  if (isnan(logit)) return kNanKey;
  const unsigned bits = __float_as_uint(logit + 0.f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(unsigned key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);  // kNanKey: 0x7fffffff, a NaN
}

// keys: 0 beyond the experts. k times the warp's largest key is found, the lowest index that has it, and that key is
// struck out.
__device__ inline void choose_row(unsigned (&keys)[kHeldLogits], int k, std::int32_t* chosen_row, float* weights_row) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  float first = 0, mine = 0;  // lane j keeps the j-th chosen
  int chosen = 0;
  for (int j = 0; j < k; ++j) {
    unsigned largest = 0;
#pragma unroll
    for (int i = 0; i < kHeldLogits; ++i) largest = max(largest, keys[i]);
    largest = __reduce_max_sync(kAll, largest);
    unsigned expert = kAll;
#pragma unroll
    for (int i = kHeldLogits - 1; i >= 0; --i) {
      if (keys[i] == largest) expert = static_cast<unsigned>(i * 32 + lane);
    }
    expert = __reduce_min_sync(kAll, expert);
#pragma unroll
    for (int i = 0; i < kHeldLogits; ++i) {
      if (static_cast<unsigned>(i * 32 + lane) == expert) keys[i] = 0;
    }
    const float logit = logit_of(largest);
    if (j == 0) first = logit;
    if (lane == j) {
      mine = logit;
      chosen = static_cast<int>(expert);
    }
  }
  const float power = lane < k ? expf(mine - first) : 0.f;
  float sum = power;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  if (lane < k) {
    chosen_row[lane] = chosen;
    weights_row[lane] = power / sum;
  }
}

}  // namespace rose::ptx
