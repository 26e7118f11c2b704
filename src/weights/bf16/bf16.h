// bfloat16 rows, to and from float.
#pragma once

#include <cstdint>

#include "weights/format.h"

namespace rose::bf16 {

inline void decode_row(const Bf16* payload, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = to_float(payload[i]);
}

// Nearest, ties to even; true when every value survives exactly.
inline bool encode_row(const float* values, std::int64_t columns, Bf16* payload) {
  bool exact = true;
  for (std::int64_t i = 0; i < columns; ++i) {
    payload[i] = to_bf16(values[i]);
    exact = exact && to_float(payload[i]) == values[i];
  }
  return exact;
}

// payload [in, out] -> transposed [out, in], in blocks that stay in the first-level cache.
inline void transpose(const Bf16* payload, std::int64_t in, std::int64_t out, Bf16* transposed) {
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t i0 = 0; i0 < in; i0 += kBlock) {
    for (std::int64_t o0 = 0; o0 < out; o0 += kBlock) {
      const std::int64_t i1 = i0 + kBlock < in ? i0 + kBlock : in;
      const std::int64_t o1 = o0 + kBlock < out ? o0 + kBlock : out;
      for (std::int64_t o = o0; o < o1; ++o) {
        for (std::int64_t i = i0; i < i1; ++i) transposed[o * in + i] = payload[i * out + o];
      }
    }
  }
}

}  // namespace rose::bf16
