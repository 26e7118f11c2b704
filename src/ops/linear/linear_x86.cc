#include "ops/linear/linear_x86.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/linear/linear.h"
#include "ops/parallel.h"
#include "ops/rows.h"
#include "ops/scratch.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/linear_x86.cc"
// foreach_target.h comes before everything that is compiled once per target.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/linear/decode-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace rose::ops::x86::HWY_NAMESPACE {

// A tile is kTileOuts outputs x up to kTileRows rows, one accumulator register each: 24 of AVX-512's 32, 12 of
// AVX2's 16.
constexpr int kTileOuts = 4;
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 6 : 3;
// Up to so many rows decode in registers; more share a decoded block of kBlockGroups groups, which stays in L1.
constexpr int kDirectRows = HWY_TARGET <= HWY_AVX3 ? 3 : 2;
constexpr std::int64_t kBlockGroups = 24;
static_assert(kBlockGroups * kGroup % kFp8Tile == 0, "a block starts at a scale tile");

constexpr std::size_t kTileFloats = kTileOuts * kTileRows * kLanes;  // accumulators of one tile
constexpr std::size_t kBlockTiles = (static_cast<int>(kRowsMax) + kTileRows - 1) / kTileRows;

// acc[r][o] += W[o] . x[r] over `groups` groups; acc is [kRows][kTileOuts] vectors in memory.
//
// `ahead`: bytes to the same place of the next tile's rows, or 0. A row is shorter than what the hardware's own
// prefetch needs to get going, and weights read once come from memory.
template <int kRows, class Row>
HWY_INLINE void accumulate(const Row (&rows)[kTileOuts], const float* const* x, std::int64_t x_begin,
                           std::int64_t groups, std::int64_t ahead, float* HWY_RESTRICT acc) {
  const D d;
  V sum[kRows][kTileOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int o = 0; o < kTileOuts; ++o) sum[r][o] = hn::Load(d, acc + (r * kTileOuts + o) * kLanes);
  }
  const float* xs[kRows];
  for (int r = 0; r < kRows; ++r) xs[r] = x[r] + x_begin;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (ahead != 0) {
#pragma GCC unroll 8
      for (int o = 0; o < kTileOuts; ++o) hwy::Prefetch(rows[o].bytes(g) + ahead);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kGroupVectors; ++v) {
      V w[kTileOuts];
#pragma GCC unroll 8
      for (int o = 0; o < kTileOuts; ++o) w[o] = rows[o].decode(g, v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V input = hn::Load(d, xs[r] + g * kGroup + v * static_cast<int>(kLanes));
#pragma GCC unroll 8
        for (int o = 0; o < kTileOuts; ++o) sum[r][o] = hn::MulAdd(w[o], input, sum[r][o]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int o = 0; o < kTileOuts; ++o) hn::Store(sum[r][o], d, acc + (r * kTileOuts + o) * kLanes);
  }
}

// accumulate for a row count known at run time.
template <int kMost, class Row>
HWY_INLINE void accumulate_rows(std::int64_t count, const Row (&rows)[kTileOuts], const float* const* x,
                                std::int64_t x_begin, std::int64_t groups, std::int64_t ahead, float* acc) {
  if constexpr (kMost > 1) {
    if (count < kMost) {
      accumulate_rows<kMost - 1>(count, rows, x, x_begin, groups, ahead, acc);
      return;
    }
  }
  accumulate<kMost>(rows, x, x_begin, groups, ahead, acc);
}

template <class Row>
HWY_INLINE void advance(Row (&rows)[kTileOuts], std::int64_t groups) {
  for (Row& row : rows) row = row.advanced(groups);
}

// Outputs [out, out + kTileOuts), the last one repeated beyond the block's end: computed twice, stored once.
template <class Row>
struct Tile {
  Row rows[kTileOuts];
  Row tails[kTileOuts];  // the incomplete last group, padded with zeros
  alignas(64) std::uint8_t padded[kTileOuts][kGroup * 2];

  Tile(const DotBlock& block, std::int64_t out) {
    const Weight& weight = *block.weight;
    for (int o = 0; o < kTileOuts; ++o) {
      rows[o] = Row::of(weight, block.expert, std::min(out + o, block.out_end - 1));
      if (weight.in % kGroup != 0) tails[o] = rows[o].tail(weight.in, padded[o]);
    }
  }
};

void reduce(const float* acc, std::int64_t row_begin, std::int64_t rows, std::int64_t out, std::int64_t outs,
            float* sums) {
  const D d;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < outs; ++o) {
      const V lanes = hn::Load(d, acc + (r * kTileOuts + o) * static_cast<std::int64_t>(kLanes));
      sums[(row_begin + r) * kOutsMax + out + o] = hn::GetLane(hn::SumOfLanes(d, lanes));
    }
  }
}

template <class Row>
void dot_few_rows(const DotBlock& block, float* sums) {
  const std::int64_t groups = block.weight->in / kGroup;
  const bool tail = block.weight->in % kGroup != 0;
  for (std::int64_t out = block.out_begin; out < block.out_end; out += kTileOuts) {
    const Tile<Row> tile(block, out);
    const std::int64_t ahead = out + 2 * kTileOuts <= block.weight->out ? kTileOuts * Row::row_bytes(*block.weight) : 0;
    alignas(64) float acc[kTileFloats] = {};
    accumulate_rows<kDirectRows>(block.row_count, tile.rows, block.rows, 0, groups, ahead, acc);
    if (tail) accumulate_rows<kDirectRows>(block.row_count, tile.tails, block.rows, groups * kGroup, 1, 0, acc);
    reduce(acc, 0, block.row_count, out - block.out_begin, std::min<std::int64_t>(kTileOuts, block.out_end - out),
           sums);
  }
}

// Decodes `groups` groups of each row of a tile into [kTileOuts][groups * kGroup] floats.
template <class Row>
HWY_INLINE void decode_groups(const Row (&rows)[kTileOuts], std::int64_t groups, float* HWY_RESTRICT out) {
  const D d;
  for (int o = 0; o < kTileOuts; ++o) {
    for (std::int64_t g = 0; g < groups; ++g) {
#pragma GCC unroll 8
      for (int v = 0; v < kGroupVectors; ++v) {
        hn::Store(rows[o].decode(g, v), d, out + (o * groups + g) * kGroup + v * static_cast<int>(kLanes));
      }
    }
  }
}

template <class Row>
void dot_many_rows(const DotBlock& block, float* sums) {
  const std::int64_t groups = block.weight->in / kGroup;
  const bool tail = block.weight->in % kGroup != 0;
  alignas(64) float decoded[kTileOuts * kBlockGroups * kGroup];
  alignas(64) float acc[kBlockTiles * kTileFloats];

  const auto add = [&](const Row(&rows)[kTileOuts], std::int64_t x_begin, std::int64_t count) {
    decode_groups(rows, count, decoded);
    FloatRow floats[kTileOuts];
    for (int o = 0; o < kTileOuts; ++o) floats[o].weights = decoded + o * count * kGroup;
    for (std::int64_t r = 0; r < block.row_count; r += kTileRows) {
      accumulate_rows<kTileRows>(block.row_count - r, floats, block.rows + r, x_begin, count, 0,
                                 acc + r * kTileOuts * static_cast<std::int64_t>(kLanes));
    }
  };

  for (std::int64_t out = block.out_begin; out < block.out_end; out += kTileOuts) {
    Tile<Row> tile(block, out);
    std::fill(acc, acc + block.row_count * kTileOuts * static_cast<std::int64_t>(kLanes), 0.0f);
    for (std::int64_t g = 0; g < groups; g += kBlockGroups) {
      const std::int64_t count = std::min(kBlockGroups, groups - g);
      add(tile.rows, g * kGroup, count);
      advance(tile.rows, count);
    }
    if (tail) add(tile.tails, groups * kGroup, 1);
    reduce(acc, 0, block.row_count, out - block.out_begin, std::min<std::int64_t>(kTileOuts, block.out_end - out),
           sums);
  }
}

template <class Row>
void dot_block_of(const DotBlock& block, float* sums) {
  if (block.row_count <= kDirectRows) {
    dot_few_rows<Row>(block, sums);
  } else {
    dot_many_rows<Row>(block, sums);
  }
}

void dot_block(const DotBlock& block, float* sums) {
  switch (block.weight->format) {
    case WeightFormat::kBf16:
      dot_block_of<Bf16Row>(block, sums);
      break;
    case WeightFormat::kFp8:
      dot_block_of<Fp8Row>(block, sums);
      break;
    case WeightFormat::kMxfp4:
      dot_block_of<Mxfp4Row>(block, sums);
      break;
  }
}

}  // namespace rose::ops::x86::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::ops::x86 {

HWY_EXPORT(dot_block);

void dot_block(const DotBlock& block, float* sums) {
  DCHECK(block.out_end - block.out_begin <= kOutsMax && block.row_count <= kRowsMax);
  HWY_DYNAMIC_DISPATCH(dot_block)(block, sums);
}

void pack_group(WeightFormat format, const float* group, float* packed) {
  if (format != WeightFormat::kMxfp4) {
    std::memcpy(packed, group, kGroup * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < kGroup / 2; ++i) {
    packed[i] = group[2 * i];
    packed[kGroup / 2 + i] = group[2 * i + 1];
  }
}

void pack_row(WeightFormat format, const Tensor& x, std::int64_t row, float* packed) {
  const std::int64_t in = x.size(1);
  for (std::int64_t begin = 0; begin < in; begin += kGroup) {
    float group[kGroup] = {};
    read_row(x, row, begin, std::min(kGroup, in - begin), group);
    pack_group(format, group, packed + begin);
  }
}

namespace {

// Bias added and rows [row, row + count) x outputs [begin, end) of y written.
void store_block(const Weight& weight, const float* sums, std::int64_t row, std::int64_t count, std::int64_t begin,
                 std::int64_t end, const Tensor& y) {
  const auto* bias = static_cast<const Bf16*>(weight.bias.raw());
  float values[kOutsMax];
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t o = begin; o < end; ++o) {
      values[o - begin] = sums[r * kOutsMax + o - begin] + (bias ? to_float(bias[o]) : 0.0f);
    }
    write_row(y, row + r, begin, end - begin, values);
  }
}

}  // namespace

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  const std::int64_t rows = x.size(0);
  if (rows == 0) return;
  const std::int64_t stride = packed_stride(weight.in);
  thread_local Scratch scratch;
  float* packed = scratch.floats(rows * stride);
  for_each_piece(stream, rows, [&](std::int64_t r) { pack_row(weight.format, x, r, packed + r * stride); });

  // Small matrices (the router) still give every thread a piece.
  const std::int64_t outs = std::min(kOutsMax, (weight.out + stream.threads() - 1) / stream.threads());
  const std::int64_t pieces = (weight.out + outs - 1) / outs;
  for_each_piece(stream, pieces, [&](std::int64_t piece) {
    alignas(64) float sums[kRowsMax * kOutsMax];
    const std::int64_t begin = piece * outs;
    const std::int64_t end = std::min(begin + outs, weight.out);
    for (std::int64_t row = 0; row < rows; row += kRowsMax) {
      const std::int64_t count = std::min(kRowsMax, rows - row);
      const float* pointers[kRowsMax];
      for (std::int64_t r = 0; r < count; ++r) pointers[r] = packed + (row + r) * stride;
      dot_block({&weight, 0, begin, end, pointers, count}, sums);
      store_block(weight, sums, row, count, begin, end, y);
    }
  });
}

}  // namespace rose::ops::x86
#endif  // HWY_ONCE
