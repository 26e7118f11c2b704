// The SIMD inner loop that linear, route and experts share: dot products of packed f32 rows with weights as stored.
//
// The sum of one (row, output) pair runs over the inputs in one fixed order (a lane sums every N-th input of the packed
// row, N lanes are added at the end). So a row's result depends on neither the other rows nor the number of threads.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops::x86 {

inline constexpr std::int64_t kGroup = 32;    // inputs of one step, all formats
inline constexpr std::int64_t kRowsMax = 48;  // rows of a block: their packed inputs stay in L2
inline constexpr std::int64_t kOutsMax = 64;  // outputs of a block

// Floats from one packed row to the next: whole groups, and an odd number of them, since rows a power of two apart
// would fall into the same cache sets.
constexpr std::int64_t packed_stride(std::int64_t in) { return (((in + kGroup - 1) / kGroup) | 1) * kGroup; }

// packed = x in the order in which the format's decoder yields its weights, zeros up to a whole group. MXFP4: the 16
// even inputs of each group before its 16 odd ones, since a byte holds an even and an odd input.
void pack_row(WeightFormat format, const Tensor& x, std::int64_t row, float* packed);
void pack_group(WeightFormat format, const float* group, float* packed);

// sums[r * kOutsMax + o - out_begin] = W[o] . x_r for o in [out_begin, out_end), without bias.
struct DotBlock {
  const Weight* weight = nullptr;
  std::int64_t expert = 0;
  std::int64_t out_begin = 0;
  std::int64_t out_end = 0;            // at most kOutsMax outputs
  const float* const* rows = nullptr;  // packed
  std::int64_t row_count = 0;          // at most kRowsMax
};
void dot_block(const DotBlock& block, float* sums);

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y);

}  // namespace rose::ops::x86
