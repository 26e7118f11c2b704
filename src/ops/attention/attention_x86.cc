#include "ops/attention/attention_x86.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "ops/parallel.h"
#include "ops/rows.h"
#include "ops/scratch.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_x86.cc"
// foreach_target.h comes before everything that is compiled once per target.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace rose::ops::x86::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kBlockVectors = static_cast<int>(kKeyBlock) / kLanes;
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;  // 32, not 16

// Where the keys of a block lie: element of the cache per position, -1 outside [work.begin, work.end).
struct Places {
  std::int64_t elements[kKeyBlock];

  void find(const SplitWork& work, std::int64_t block) {
    const std::int64_t page_size = work.kv->page_size;
    std::int64_t page = block / page_size;
    std::int64_t offset = block % page_size;
    for (std::int64_t j = 0; j < kKeyBlock; ++j) {
      const bool inside = block + j >= work.begin && block + j < work.end;
      elements[j] = -1;
      if (inside) {
        elements[j] = work.kv->element(work.pages[page - work.first_page] * page_size + offset, work.kv_head);
      }
      if (++offset == page_size) {
        offset = 0;
        ++page;
      }
    }
  }

  // No hardware prefetch follows from page to page.
  void prefetch(const Tensor& from, std::int64_t head_dim) const {
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(from.dtype()));
    const auto* cache = static_cast<const std::uint8_t*>(from.raw());
    for (const std::int64_t element : elements) {
      if (element < 0) continue;
      for (std::int64_t line = element * bytes; line < (element + head_dim) * bytes; line += 64) {
        hwy::Prefetch(cache + line);
      }
    }
  }
};

// e4m3 as floats, exact. An exponent of 0 is a subnormal: with the bias moved it reads 2^-7 * (1 + m / 8), and stands
// for 2^-6 * m / 8.
template <class D32>
HWY_INLINE V decode_e4m3(hn::Vec<D32> codes, D32 d32) {
  const D d;
  const auto magnitude = hn::And(codes, hn::Set(d32, 0x7f));
  const V normal = hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(d32, 120u << 23)));
  const V subnormal = hn::Sub(hn::Add(normal, normal), hn::Set(d, 0x1p-6f));
  const V finite = hn::IfThenElse(hn::RebindMask(d, hn::Lt(magnitude, hn::Set(d32, 8))), subnormal, normal);
  const V value = hn::IfThenElse(hn::RebindMask(d, hn::Eq(magnitude, hn::Set(d32, 0x7f))), hn::NaN(d), finite);
  return hn::Or(value, hn::BitCast(d, hn::ShiftLeft<24>(hn::And(codes, hn::Set(d32, 0x80)))));
}

// Rows of keys or values of one block as floats: [kKeyBlock][head_dim], zeros outside [begin, end).
void load_block(const Places& places, const Tensor& from, std::int64_t head_dim, float* HWY_RESTRICT rows) {
  const D d;
  for (std::int64_t j = 0; j < kKeyBlock; ++j, rows += head_dim) {
    const std::int64_t element = places.elements[j];
    if (element < 0) {
      std::fill(rows, rows + head_dim, 0.0f);
    } else if (from.dtype() == DType::kF32) {
      std::memcpy(rows, static_cast<const float*>(from.raw()) + element, static_cast<std::size_t>(head_dim) * 4);
    } else if (from.dtype() == DType::kF8E4M3) {
      const hn::Rebind<std::uint8_t, D> d8;
      const hn::RebindToUnsigned<D> d32;
      const auto* codes = static_cast<const std::uint8_t*>(from.raw()) + element;
      for (std::int64_t i = 0; i < head_dim; i += kLanes) {
        hn::Store(decode_e4m3(hn::PromoteTo(d32, hn::LoadU(d8, codes + i)), d32), d, rows + i);
      }
    } else {
      const hn::Rebind<std::uint16_t, D> d16;
      const hn::RebindToUnsigned<D> d32;
      const auto* bits = static_cast<const std::uint16_t*>(from.raw()) + element;
      for (std::int64_t i = 0; i < head_dim; i += kLanes) {
        hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, bits + i)))), d, rows + i);
      }
    }
  }
}

// [kKeyBlock][head_dim] -> [head_dim][kKeyBlock]: a vector then holds the same dim of neighbouring keys, and scores
// need no sums across lanes.
void transpose_block(const float* HWY_RESTRICT rows, std::int64_t head_dim, float* HWY_RESTRICT columns) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t j = 0; j < kKeyBlock; ++j) {
    for (std::int64_t i = 0; i < head_dim; ++i) columns[i * kKeyBlock + j] = rows[j * head_dim + i];
  }
#else
  const hn::Full128<float> d4;
  const hn::Repartition<double, decltype(d4)> d2;
  for (std::int64_t j = 0; j < kKeyBlock; j += 4) {
    for (std::int64_t i = 0; i < head_dim; i += 4) {
      const float* from = rows + j * head_dim + i;
      const auto a = hn::Load(d4, from);
      const auto b = hn::Load(d4, from + head_dim);
      const auto c = hn::Load(d4, from + 2 * head_dim);
      const auto e = hn::Load(d4, from + 3 * head_dim);
      const auto ab_low = hn::BitCast(d2, hn::InterleaveLower(d4, a, b));
      const auto ce_low = hn::BitCast(d2, hn::InterleaveLower(d4, c, e));
      const auto ab_high = hn::BitCast(d2, hn::InterleaveUpper(d4, a, b));
      const auto ce_high = hn::BitCast(d2, hn::InterleaveUpper(d4, c, e));
      float* to = columns + i * kKeyBlock + j;
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, ab_low, ce_low)), d4, to);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_low, ce_low)), d4, to + kKeyBlock);
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, ab_high, ce_high)), d4, to + 2 * kKeyBlock);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_high, ce_high)), d4, to + 3 * kKeyBlock);
    }
  }
#endif
}

// scores[i][j] = q_i . k_j for kCount queries and one block of keys, dims in order.
template <int kCount>
HWY_INLINE void score_block(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT columns, std::int64_t head_dim,
                            float* HWY_RESTRICT scores) {
  constexpr int kStep = kManyRegisters ? kBlockVectors : 2;  // vectors of keys at a time
  const D d;
  for (int begin = 0; begin < kBlockVectors; begin += kStep) {
    V sum[kCount][kStep];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) sum[i][v] = hn::Zero(d);
    }
    for (std::int64_t dim = 0; dim < head_dim; ++dim) {
      V key[kStep];
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) key[v] = hn::Load(d, columns + dim * kKeyBlock + (begin + v) * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const V q = hn::Set(d, queries[i * head_dim + dim]);
#pragma GCC unroll 8
        for (int v = 0; v < kStep; ++v) sum[i][v] = hn::MulAdd(q, key[v], sum[i][v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) hn::Store(sum[i][v], d, scores + i * kKeyBlock + (begin + v) * kLanes);
    }
  }
}

HWY_INLINE V exp_keep_nan(D d, V x) { return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x); }

// Scores of one query become exp(scale * score - new maximum), 0 where invisible; returns what the old sums shrink by.
HWY_INLINE float soften(const SplitWork& work, std::int64_t i, std::int64_t block, const SplitState& state,
                        float* HWY_RESTRICT scores) {
  const D d;
  const hn::RebindToSigned<D> di;
  const std::int32_t position = work.positions[i];
  const std::int32_t first = work.window > 0 ? position - static_cast<std::int32_t>(work.window) + 1 : 0;
  const V scale = hn::Set(d, work.scale);
  const V hidden = hn::Set(d, -HUGE_VALF);
  V maximum = hidden;
  for (int v = 0; v < kBlockVectors; ++v) {
    const auto key = hn::Iota(di, static_cast<std::int32_t>(block) + v * kLanes);
    const auto visible = hn::Not(hn::Or(hn::Lt(key, hn::Set(di, first)), hn::Gt(key, hn::Set(di, position))));
    const V score =
        hn::IfThenElse(hn::RebindMask(d, visible), hn::Mul(hn::Load(d, scores + v * kLanes), scale), hidden);
    maximum = hn::Max(maximum, score);
    hn::Store(score, d, scores + v * kLanes);
  }
  const float old = state.maximum[i];
  const float block_maximum = hn::GetLane(hn::MaxOfLanes(d, maximum));
  const float now = block_maximum > old ? block_maximum : old;
  V sum = hn::Zero(d);
  for (int v = 0; v < kBlockVectors; ++v) {
    const V p = exp_keep_nan(d, hn::Sub(hn::Load(d, scores + v * kLanes), hn::Set(d, now)));
    sum = hn::Add(sum, p);
    hn::Store(p, d, scores + v * kLanes);
  }
  const float shrink = now == old ? 1.0f : hn::GetLane(hn::Exp(d, hn::Set(d, old - now)));
  state.maximum[i] = now;
  state.sum[i] = state.sum[i] * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
  return shrink;
}

// values[i] = values[i] * shrink[i] + sum_j p[i][j] v_j, for kCount queries, keys in order.
template <int kCount>
HWY_INLINE void weigh_block(const float* HWY_RESTRICT p, const float* HWY_RESTRICT shrink,
                            const float* HWY_RESTRICT rows, std::int64_t head_dim, float* HWY_RESTRICT values) {
  constexpr int kStep = kManyRegisters ? 4 : 2;  // vectors of dims at a time, where so many are left
  const D d;
  std::int64_t dim = 0;
  for (; dim + kStep * kLanes <= head_dim; dim += kStep * kLanes) {
    V sum[kCount][kStep];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) {
        sum[i][v] = hn::Mul(hn::Load(d, values + i * head_dim + dim + v * kLanes), hn::Set(d, shrink[i]));
      }
    }
    for (std::int64_t j = 0; j < kKeyBlock; ++j) {
      V value[kStep];
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) value[v] = hn::Load(d, rows + j * head_dim + dim + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const V weight = hn::Set(d, p[i * kKeyBlock + j]);
#pragma GCC unroll 8
        for (int v = 0; v < kStep; ++v) sum[i][v] = hn::MulAdd(weight, value[v], sum[i][v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kStep; ++v) hn::Store(sum[i][v], d, values + i * head_dim + dim + v * kLanes);
    }
  }
  for (; dim < head_dim; dim += kLanes) {
    for (int i = 0; i < kCount; ++i) {
      V sum = hn::Mul(hn::Load(d, values + i * head_dim + dim), hn::Set(d, shrink[i]));
      for (std::int64_t j = 0; j < kKeyBlock; ++j) {
        sum = hn::MulAdd(hn::Set(d, p[i * kKeyBlock + j]), hn::Load(d, rows + j * head_dim + dim), sum);
      }
      hn::Store(sum, d, values + i * head_dim + dim);
    }
  }
}

void attend_split(const SplitWork& work, const SplitState& state) {
  constexpr int kScored = kManyRegisters ? 8 : 4;
  constexpr int kWeighed = 4;
  const std::int64_t head_dim = work.head_dim;
  alignas(64) float rows[kKeyBlock * kHeadDimMax];
  alignas(64) float columns[kKeyBlock * kHeadDimMax];
  alignas(64) float scores[kQueriesMax * kKeyBlock];
  float shrink[kQueriesMax];
  Places places;
  Places next;
  const std::int64_t first = work.begin / kKeyBlock * kKeyBlock;
  next.find(work, first);
  for (std::int64_t block = first; block < work.end; block += kKeyBlock) {
    places = next;
    next.find(work, block + kKeyBlock);
    places.prefetch(work.kv->values, head_dim);
    load_block(places, work.kv->keys, head_dim, rows);
    transpose_block(rows, head_dim, columns);
    std::int64_t i = 0;
    for (; i + kScored <= work.count; i += kScored) {
      score_block<kScored>(work.queries + i * head_dim, columns, head_dim, scores + i * kKeyBlock);
    }
    for (; i < work.count; ++i) score_block<1>(work.queries + i * head_dim, columns, head_dim, scores + i * kKeyBlock);
    for (i = 0; i < work.count; ++i) shrink[i] = soften(work, i, block, state, scores + i * kKeyBlock);
    next.prefetch(work.kv->keys, head_dim);
    load_block(places, work.kv->values, head_dim, rows);
    for (i = 0; i + kWeighed <= work.count; i += kWeighed) {
      weigh_block<kWeighed>(scores + i * kKeyBlock, shrink + i, rows, head_dim, state.values + i * head_dim);
    }
    for (; i < work.count; ++i) {
      weigh_block<1>(scores + i * kKeyBlock, shrink + i, rows, head_dim, state.values + i * head_dim);
    }
  }
}

}  // namespace rose::ops::x86::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::ops::x86 {

HWY_EXPORT(attend_split);

void attend_split(const SplitWork& work, const SplitState& state) { HWY_DYNAMIC_DISPATCH(attend_split)(work, state); }

bool attention_fits(std::int64_t head_dim, std::int64_t heads_per_kv_head) {
  return head_dim % 16 == 0 && head_dim > 0 && head_dim <= kHeadDimMax && heads_per_kv_head <= kQueriesMax;
}

namespace {

constexpr float kLowest = -1e30f;  // below every score, and kLowest - kLowest is 0 where -inf gives NaN

struct Piece {  // rows [row, row + rows) of one sequence, one KV head
  int sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t split_begin = 0;  // splits with a visible key
  std::int64_t split_end = 0;
};

struct Call {
  const Tensor& q;
  const KvLayer& kv;
  const AttentionPlan& plan;
  const Tensor& sinks;
  float scale;
  const Tensor& out;

  std::int64_t head_dim() const { return q.size(2); }
  std::int64_t heads_per_kv_head() const { return q.size(1) / kv.kv_heads(); }
  std::int64_t queries(const Piece& piece) const { return piece.rows * heads_per_kv_head(); }
  std::int64_t position(const Piece& piece, std::int64_t row) const {
    const auto s = static_cast<std::size_t>(piece.sequence);
    return plan.context_lengths.as<std::int32_t>()[s] - plan.row_offsets.as<std::int32_t>()[s + 1] + row;
  }
  std::int64_t keys_begin(const Piece& piece) const {
    return plan.window > 0 ? std::max<std::int64_t>(0, position(piece, piece.row) - plan.window + 1) : 0;
  }
  std::int64_t keys_end(const Piece& piece) const { return position(piece, piece.row + piece.rows - 1) + 1; }
};

// A piece's queries as floats, row by row, the heads of the KV head within a row.
struct Queries {
  alignas(64) float values[kQueriesMax * kHeadDimMax];
  std::int32_t positions[kQueriesMax];

  Queries(const Call& call, const Piece& piece) {
    const std::int64_t heads = call.heads_per_kv_head();
    const std::int64_t head_dim = call.head_dim();
    const Tensor flat = call.q.reshape({call.q.size(0), call.q.size(1) * head_dim});
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      read_row(flat, piece.row + r, piece.kv_head * heads * head_dim, heads * head_dim, values + r * heads * head_dim);
      std::fill_n(positions + r * heads, heads, static_cast<std::int32_t>(call.position(piece, piece.row + r)));
    }
  }
};

void attend(const Call& call, const Piece& piece, const Queries& queries, std::int64_t split, const SplitState& state) {
  const std::int64_t count = call.queries(piece);
  std::fill_n(state.maximum, count, kLowest);
  std::fill_n(state.sum, count, 0.0f);
  std::fill_n(state.values, count * call.head_dim(), 0.0f);
  attend_split({.queries = queries.values,
                .positions = queries.positions,
                .count = count,
                .head_dim = call.head_dim(),
                .begin = std::max(split * kKeySplit, call.keys_begin(piece)),
                .end = std::min((split + 1) * kKeySplit, call.keys_end(piece)),
                .window = call.plan.window,
                .scale = call.scale,
                .kv = &call.kv,
                .kv_head = piece.kv_head,
                .pages = call.plan.page_table.row<std::int32_t>(piece.sequence),
                .first_page = call.plan.first_pages.as<std::int32_t>()[piece.sequence]},
               state);
}

// total += part, each relative to its own maximum.
void merge(const SplitState& part, std::int64_t count, std::int64_t head_dim, const SplitState& total) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float maximum = part.maximum[i] > total.maximum[i] ? part.maximum[i] : total.maximum[i];
    const float old = std::exp(total.maximum[i] - maximum);
    const float added = std::exp(part.maximum[i] - maximum);
    total.maximum[i] = maximum;
    total.sum[i] = total.sum[i] * old + part.sum[i] * added;
    float* values = total.values + i * head_dim;
    const float* more = part.values + i * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) values[d] = values[d] * old + more[d] * added;
  }
}

struct Total {
  float maximum[kQueriesMax];
  float sum[kQueriesMax];
  alignas(64) float values[kQueriesMax * kHeadDimMax];

  SplitState state() { return {maximum, sum, values}; }

  // The sink: a term of the sum without a value.
  void start(const Call& call, const Piece& piece) {
    const std::int64_t heads = call.heads_per_kv_head();
    const auto* sinks = call.sinks.as<Bf16>() + piece.kv_head * heads;
    for (std::int64_t i = 0; i < call.queries(piece); ++i) {
      const float sink = to_float(sinks[i % heads]);
      maximum[i] = sink < kLowest ? kLowest : sink;
      sum[i] = std::exp(sink - maximum[i]);
    }
    std::fill_n(values, call.queries(piece) * call.head_dim(), 0.0f);
  }

  void finish(const Call& call, const Piece& piece) {
    const std::int64_t heads = call.heads_per_kv_head();
    const std::int64_t head_dim = call.head_dim();
    for (std::int64_t i = 0; i < call.queries(piece); ++i) {
      const float inverse = 1.0f / sum[i];
      for (std::int64_t d = 0; d < head_dim; ++d) values[i * head_dim + d] *= inverse;
    }
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      write_row(call.out, piece.row + r, piece.kv_head * heads * head_dim, heads * head_dim,
                values + r * heads * head_dim);
    }
  }
};

// Longest first: the pieces that end last should not start last.
void list_pieces(const Call& call, std::vector<Piece>& pieces) {
  const auto* offsets = call.plan.row_offsets.as<std::int32_t>();
  const std::int64_t rows_max = std::max<std::int64_t>(1, kQueriesMax / call.heads_per_kv_head());
  pieces.clear();
  for (int s = 0; s < call.plan.sequences; ++s) {
    for (std::int64_t end = offsets[s + 1]; end > offsets[s]; end -= std::min(rows_max, end - offsets[s])) {
      const std::int64_t rows = std::min<std::int64_t>(rows_max, end - offsets[s]);
      for (std::int64_t h = 0; h < call.kv.kv_heads(); ++h) {
        Piece piece{.sequence = s, .kv_head = h, .row = end - rows, .rows = rows};
        piece.split_begin = call.keys_begin(piece) / kKeySplit;
        piece.split_end = (call.keys_end(piece) - 1) / kKeySplit + 1;
        pieces.push_back(piece);
      }
    }
  }
}

void attend_whole(const Call& call, const Piece& piece) {
  const Queries queries(call, piece);
  Total total;
  Total part;
  total.start(call, piece);
  for (std::int64_t split = piece.split_begin; split < piece.split_end; ++split) {
    attend(call, piece, queries, split, part.state());
    merge(part.state(), call.queries(piece), call.head_dim(), total.state());
  }
  total.finish(call, piece);
}

// Few long pieces: each split is work of its own; its state waits in `states` until all are there.
void attend_by_split(const Stream& stream, const Call& call, const std::vector<Piece>& pieces) {
  thread_local Scratch scratch;
  thread_local std::vector<std::int64_t> first_split;
  first_split.assign(1, 0);
  std::int64_t queries = 0;
  for (const Piece& piece : pieces) {
    first_split.push_back(first_split.back() + piece.split_end - piece.split_begin);
    queries = std::max(queries, call.queries(piece));
  }
  const std::vector<std::int64_t>& firsts = first_split;
  const std::int64_t head_dim = call.head_dim();
  const std::int64_t stride = (queries * (head_dim + 2) + 15) / 16 * 16;
  float* states = scratch.floats(firsts.back() * stride);
  const auto state_of = [&](std::int64_t split) {
    float* state = states + split * stride;
    return SplitState{state + queries * head_dim, state + queries * (head_dim + 1), state};
  };
  for_each_piece(stream, firsts.back(), [&](std::int64_t split) {
    const auto p = static_cast<std::size_t>(std::upper_bound(firsts.begin(), firsts.end(), split) - firsts.begin() - 1);
    const Queries loaded(call, pieces[p]);
    attend(call, pieces[p], loaded, pieces[p].split_begin + split - firsts[p], state_of(split));
  });
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    Total total;
    total.start(call, pieces[p]);
    for (std::int64_t split = firsts[p]; split < firsts[p + 1]; ++split) {
      merge(state_of(split), call.queries(pieces[p]), head_dim, total.state());
    }
    total.finish(call, pieces[p]);
  }
}

}  // namespace

void attention(const Stream& stream, const Tensor& q, const KvLayer& kv, const AttentionPlan& plan, const Tensor& sinks,
               float scale, const Tensor& out) {
  const Call call{q, kv, plan, sinks, scale, out};
  thread_local std::vector<Piece> list;
  list_pieces(call, list);
  const std::vector<Piece>& pieces = list;
  if (pieces.size() < static_cast<std::size_t>(2 * stream.threads()) && stream.threads() > 1) {
    attend_by_split(stream, call, pieces);
  } else {
    for_each_piece(stream, static_cast<std::int64_t>(pieces.size()),
                   [&](std::int64_t p) { attend_whole(call, pieces[static_cast<std::size_t>(p)]); });
  }
}

}  // namespace rose::ops::x86
#endif  // HWY_ONCE
