// Attention of one row. A block has one KV head and its eight query heads, and a windowed layer's context or one of
// kSplits parts of a long one; its warps take 16 positions in turn. Keys and values go straight to registers, the
// first of them before the row's query is known.
//
// S^T = K Q^T with the keys as the 16 rows of mma.m16n8k16 and the heads as its 8 columns, then O^T = V^T P^T. Order
// along head_dim is free as long as both sides agree: lane t of a quad has dims 8t .. 8t + 7 and 32 + 8t .. 32 + 8t + 7
// of keys lane / 4 and 8 further on: 16 bytes each, and both halves of every RoPE pair. V is turned in registers.
//
// The row's own key and value are never read from the cache: who has the last position takes them from qkv, and
// appends them.
#pragma once

#include "ops/decode_layers/decode_layers_exchange.cuh"
#include "ops/decode_layers/decode_layers_weights.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/softmax.cuh"

namespace rose::ops::cuda {

// What a warp, or a block, has found: maximum (score units), sum, and output before it is divided.
struct DecodePart {
  float maximum[8], sum[8];
  float out[8][DecodeLayersKernel::kHeadDim];
};
static_assert(sizeof(DecodePart) == DecodePackets::kPieceSize * 4);

struct DecodeTurns {
  float cosine[32], sine[32];  // times the concentration
};

// What a block does of a layer's attention; begin == end where a part is empty.
struct DecodeAttentionTask {
  int kv_head, split;
  int begin, end;  // positions
  int newest;      // position of the row itself
  bool whole;      // no other block has a part

  __device__ DecodeAttentionTask(int window, int context) {
    using S = DecodeLayersKernel;
    kv_head = static_cast<int>(blockIdx.x) / S::kSplits;
    split = static_cast<int>(blockIdx.x) % S::kSplits;
    newest = context - 1;
    whole = window > 0;
    const int length = ((context + S::kSplits - 1) / S::kSplits + 15) / 16 * 16;
    begin = whole ? max(0, context - window) : min(context, split * length);
    end = whole ? context : min(context, begin + length);
  }
  __device__ bool takes_part() const { return kv_head < DecodeLayersKernel::kKvHeads && (!whole || split == 0); }
};

__device__ inline void consumers_sync() { ptx::named_sync(1, DecodeLayersKernel::kConsumers); }

// --- keys and values in registers
// ----------------------------------------------------------------------------------------

// 16 dims as bf16 pairs: four of each half of the head.
struct DecodeDims {
  std::uint32_t pairs[8];
};

// The same as the cache has them.
template <bool kE4m3>
struct DecodeStored {
  std::uint32_t words[kE4m3 ? 4 : 8];

  __device__ std::uint32_t pair(int i) const {
    if constexpr (kE4m3) return ptx::e4m3_to_bf16(words[i / 2] >> i % 2 * 16);
    return words[i];
  }

  // `row`: of 64 elements, in the cache.
  __device__ static DecodeStored load(const DecodeThread& thread, const void* cache, std::uint32_t row) {
    DecodeStored stored;
    const auto* at = static_cast<const std::uint8_t*>(cache) + (row * 64L + thread.lane % 4 * 8) * (kE4m3 ? 1 : 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kE4m3) {
        const uint2 bits = *reinterpret_cast<const uint2*>(at + half * 32);
        stored.words[half * 2] = bits.x, stored.words[half * 2 + 1] = bits.y;
      } else {
        const uint4 bits = *reinterpret_cast<const uint4*>(at + half * 64);
        stored.words[half * 4] = bits.x, stored.words[half * 4 + 1] = bits.y;
        stored.words[half * 4 + 2] = bits.z, stored.words[half * 4 + 3] = bits.w;
      }
    }
    return stored;
  }
  __device__ void store(const DecodeThread& thread, void* cache, std::uint32_t row) const {
    auto* at = static_cast<std::uint8_t*>(cache) + (row * 64L + thread.lane % 4 * 8) * (kE4m3 ? 1 : 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kE4m3) {
        *reinterpret_cast<uint2*>(at + half * 32) = {words[half * 2], words[half * 2 + 1]};
      } else {
        *reinterpret_cast<uint4*>(at + half * 64) = {words[half * 4], words[half * 4 + 1], words[half * 4 + 2],
                                                     words[half * 4 + 3]};
      }
    }
  }
};

// q, k and v of one KV head, as qkv made them.
struct DecodeQkv {
  float rows[DecodeLayersKernel::kGroupHeads + 2][DecodeLayersKernel::kHeadDim];
};

// This lane's 16 dims of a head, rotated where kRotated.
template <bool kRotated>
__device__ inline void read_head(const DecodeThread& thread, const float (&head)[64], const DecodeTurns& turns,
                                 float (&low)[8], float (&high)[8]) {
  const int at = thread.lane % 4 * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float x = head[at + i], y = head[32 + at + i];
    const float cosine = kRotated ? turns.cosine[at + i] : 1.f, sine = kRotated ? turns.sine[at + i] : 0.f;
    low[i] = kRotated ? x * cosine - y * sine : x;
    high[i] = kRotated ? y * cosine + x * sine : y;
  }
}

__device__ inline DecodeDims pack_dims(const float (&low)[8], const float (&high)[8]) {
  DecodeDims dims;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    dims.pairs[w] = ptx::pack_bf16(low[2 * w], low[2 * w + 1]);
    dims.pairs[4 + w] = ptx::pack_bf16(high[2 * w], high[2 * w + 1]);
  }
  return dims;
}

template <bool kE4m3>
__device__ inline DecodeStored<kE4m3> round_dims(const float (&low)[8], const float (&high)[8]) {
  DecodeStored<kE4m3> stored;
  if constexpr (kE4m3) {
    const auto four = [](const float(&x)[8], int i) {
      return static_cast<std::uint32_t>(ptx::pack_e4m3(x[i], x[i + 1])) |
             static_cast<std::uint32_t>(ptx::pack_e4m3(x[i + 2], x[i + 3])) << 16;
    };
    stored.words[0] = four(low, 0), stored.words[1] = four(low, 4);
    stored.words[2] = four(high, 0), stored.words[3] = four(high, 4);
  } else {
    const DecodeDims dims = pack_dims(low, high);
#pragma unroll
    for (int i = 0; i < 8; ++i) stored.words[i] = dims.pairs[i];
  }
  return stored;
}

// Rows lane / 4 and lane / 4 + 8 of 16 positions of keys or of values; zeros past the end, and for the newest.
template <bool kE4m3>
struct DecodeUnit {
  DecodeStored<kE4m3> rows[2];
};

__device__ inline std::uint32_t row_of_position(const DecodeLayersParams& params, const DecodeKvSet& set,
                                                int first_page, int kv_head, int position) {
  const int page = __ldg(set.page_table + ((position >> params.page_shift) - first_page));
  return (static_cast<std::uint32_t>(page * DecodeLayersKernel::kKvHeads + kv_head) << params.page_shift) +
         static_cast<std::uint32_t>(position & ((1 << params.page_shift) - 1));
}

template <bool kE4m3>
__device__ inline DecodeUnit<kE4m3> load_unit(const DecodeThread& thread, const DecodeLayersParams& params,
                                              const void* cache, const DecodeKvSet& set,
                                              const DecodeAttentionTask& task, int first_page, int position) {
  DecodeUnit<kE4m3> unit{};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int p = position + thread.lane / 4 + half * 8;
    if (p >= task.end || p == task.newest) continue;
    unit.rows[half] =
        DecodeStored<kE4m3>::load(thread, cache, row_of_position(params, set, first_page, task.kv_head, p));
  }
  return unit;
}

// --- one warp
// -----------------------------------------------------------------------------------------------------------

struct DecodeHeads {
  float maximum[2] = {-INFINITY, -INFINITY};  // heads lane % 4 * 2, + 1; the same in all lanes of equal lane % 4
  float sum[2] = {0, 0};
  float out[4][4] = {};  // rows of tile i: dims dim_of(i, 0), dim_of(i, 1); columns: the two heads

  __device__ static int dim_of(const DecodeThread& thread, int tile, int upper) {
    const int row = thread.lane / 4;
    return tile / 2 * 32 + row / 2 * 8 + tile % 2 * 4 + upper * 2 + row % 2;
  }
};

// Scores of 16 positions from `position` on; -infinity past the end.
template <bool kE4m3>
__device__ inline void score_unit(const DecodeThread& thread, const DecodeUnit<kE4m3>& keys, const DecodeDims& query,
                                  int position, int end, float (&s)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t a[4] = {keys.rows[0].pair(2 * i), keys.rows[1].pair(2 * i), keys.rows[0].pair(2 * i + 1),
                                keys.rows[1].pair(2 * i + 1)};
    ptx::mma_bf16(s, a, query.pairs[2 * i], query.pairs[2 * i + 1]);
  }
  const int own = position + thread.lane / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (own + i / 2 * 8 >= end) s[i] = -INFINITY;
  }
}

template <bool kE4m3>
__device__ inline void add_values(const DecodeUnit<kE4m3>& values, float (&s)[4], float scale, DecodeHeads& heads) {
  float factor[2];
  ptx::softmax_step(s, scale, heads.maximum, heads.sum, factor);
  const std::uint32_t p0 = ptx::transpose_8x8(ptx::pack_bf16(s[0], s[1])),
                      p1 = ptx::transpose_8x8(ptx::pack_bf16(s[2], s[3]));
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) heads.out[tile][i] *= factor[i % 2];
    const std::uint32_t a[4] = {
        ptx::transpose_8x8(values.rows[0].pair(2 * tile)), ptx::transpose_8x8(values.rows[0].pair(2 * tile + 1)),
        ptx::transpose_8x8(values.rows[1].pair(2 * tile)), ptx::transpose_8x8(values.rows[1].pair(2 * tile + 1))};
    ptx::mma_bf16(heads.out[tile], a, p0, p1);
  }
}

// The row's own key and value: from qkv into the cache, and into their place among 16 positions from `position` on.
template <bool kE4m3>
__device__ inline void take_newest(const DecodeThread& thread, const DecodeLayersParams& params,
                                   const DecodeLayerParams& layer, const DecodeAttentionTask& task,
                                   const DecodeTurns& turns, const DecodeQkv& qkv, int position,
                                   DecodeUnit<kE4m3>& keys, DecodeUnit<kE4m3>& values) {
  using S = DecodeLayersKernel;
  const int slot = __ldg(params.sets[layer.kv_set].slot), page = slot >> params.page_shift;
  const std::uint32_t row = (static_cast<std::uint32_t>(page * S::kKvHeads + task.kv_head) << params.page_shift) +
                            static_cast<std::uint32_t>(slot & ((1 << params.page_shift) - 1));
  const int own = task.newest - position;
  const bool has = thread.lane / 4 == own % 8;
  float low[8], high[8];
  read_head<true>(thread, qkv.rows[S::kGroupHeads], turns, low, high);
  const DecodeStored<kE4m3> key = round_dims<kE4m3>(low, high);
  if (has) key.store(thread, layer.keys, row);
  if (has && own < 8) keys.rows[0] = key;
  if (has && own >= 8) keys.rows[1] = key;
  read_head<false>(thread, qkv.rows[S::kGroupHeads + 1], turns, low, high);
  const DecodeStored<kE4m3> value = round_dims<kE4m3>(low, high);
  if (has) value.store(thread, layer.values, row);
  if (has && own < 8) values.rows[0] = value;
  if (has && own >= 8) values.rows[1] = value;
}

// All threads: q, k and v of the block's KV head.
__device__ inline void gather_qkv(const DecodeThread& thread, const DecodeLayersParams& params, std::uint32_t tag,
                                  int kv_head, DecodeQkv& to) {
  using S = DecodeLayersKernel;
  const DecodePacket* packets = params.work->packets + DecodePackets::kQkv;
  const auto row_of = [&](int row) {  // of the block's, in qkv
    constexpr int kQueries = S::kGroupHeads * S::kHeadDim;
    if (row < kQueries) return kv_head * kQueries + row;
    const int other = row - kQueries;
    return (S::kHeads + other / S::kHeadDim * S::kKvHeads + kv_head) * S::kHeadDim + other % S::kHeadDim;
  };
  constexpr int kRows = (S::kGroupHeads + 2) * S::kHeadDim;
  consumers_sync();
  gather_pairs<kRows / 2>(
      thread.index, tag, [&](int pair) { return packets + row_of(2 * pair); },
      [&](int, int pair, std::uint32_t first, std::uint32_t second) {
        *reinterpret_cast<float2*>(&to.rows[0][0] + 2 * pair) = {__uint_as_float(first), __uint_as_float(second)};
      });
  consumers_sync();
}

// All positions of the task that fall to this warp. Rows of the next 16 are asked for as soon
// as registers are free.
template <bool kE4m3>
__device__ inline void attend(const DecodeThread& thread, const DecodeLayersParams& params,
                              const DecodeLayerParams& layer, const DecodeAttentionTask& task, const DecodeTurns& turns,
                              std::uint32_t tag, DecodeQkv& qkv, DecodeHeads& heads) {
  using S = DecodeLayersKernel;
  constexpr int kStep = S::kAttentionWarps * 16;
  const DecodeKvSet& set = params.sets[layer.kv_set];
  const int first_page = __ldg(set.first_page);
  int position = thread.warp < S::kAttentionWarps ? task.begin + thread.warp * 16 : task.end;
  DecodeUnit<kE4m3> keys = load_unit<kE4m3>(thread, params, layer.keys, set, task, first_page, position);
  DecodeUnit<kE4m3> values = load_unit<kE4m3>(thread, params, layer.values, set, task, first_page, position);
  gather_qkv(thread, params, tag, task.kv_head, qkv);
  if (position >= task.end) return;
  float low[8], high[8];
  read_head<true>(thread, qkv.rows[thread.lane / 4], turns, low, high);
  const DecodeDims query = pack_dims(low, high);
  for (; position < task.end; position += kStep) {
    if (position <= task.newest && task.newest < position + 16) {
      take_newest<kE4m3>(thread, params, layer, task, turns, qkv, position, keys, values);
    }
    float s[4];
    score_unit(thread, keys, query, position, task.end, s);
    keys = load_unit<kE4m3>(thread, params, layer.keys, set, task, first_page, position + kStep);
    add_values(values, s, params.scale_log2, heads);
    values = load_unit<kE4m3>(thread, params, layer.values, set, task, first_page, position + kStep);
  }
}

__device__ inline void write_part(const DecodeThread& thread, const DecodeHeads& heads, DecodePart& part) {
  const int lane = thread.lane, head = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = heads.sum[i];
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane < 4) part.maximum[head + i] = heads.maximum[i], part.sum[head + i] = sum;
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) part.out[head + i % 2][DecodeHeads::dim_of(thread, tile, i / 2)] = heads.out[tile][i];
  }
}

// --- one block, and all parts of a head
// --------------------------------------------------------------------------------

__device__ inline float sink_weight(const std::uint16_t* sinks, int head, float maximum, float scale_log2) {
  return ptx::exp2_fast(fmaf(ptx::bf16_to_float(sinks[head]), 1.44269504f, -maximum * scale_log2));
}

// Threads 0 .. 255: two dims of a head, over the warps' parts. The result is published: as it is where the block has
// the whole context, else as a piece for sum_pieces.
__device__ inline void sum_parts(const DecodeThread& thread, const DecodeLayersParams& params,
                                 const DecodeLayerParams& layer, const DecodeAttentionTask& task,
                                 const DecodePart (&parts)[DecodeLayersKernel::kAttentionWarps], std::uint32_t tag) {
  using S = DecodeLayersKernel;
  const int head = thread.warp, dim = thread.lane * 2;
  if (head >= S::kGroupHeads) return;
  float maximum = -INFINITY, sum = 0;
#pragma unroll
  for (int warp = 0; warp < S::kAttentionWarps; ++warp) maximum = fmaxf(maximum, parts[warp].maximum[head]);
  const float safe = maximum == -INFINITY ? 0.f : maximum;
  float first = 0, second = 0;
#pragma unroll
  for (int warp = 0; warp < S::kAttentionWarps; ++warp) {
    const float factor = ptx::exp2_fast((parts[warp].maximum[head] - safe) * params.scale_log2);
    sum = fmaf(parts[warp].sum[head], factor, sum);
    const float2 out = *reinterpret_cast<const float2*>(&parts[warp].out[head][dim]);
    first = fmaf(out.x, factor, first), second = fmaf(out.y, factor, second);
  }
  const int head_of_all = task.kv_head * S::kGroupHeads + head;
  if (task.whole) {
    const float inverse = __fdividef(1.f, sum + sink_weight(layer.sinks, head_of_all, safe, params.scale_log2));
    publish(params.work->packets + DecodePackets::kAttended + head_of_all * (S::kHeadDim / 2) + dim / 2,
            ptx::pack_bf16(first * inverse, second * inverse), tag);
    return;
  }
  DecodePacket* piece = params.work->packets + DecodePackets::kPieces +
                        (task.kv_head * S::kSplits + task.split) * DecodePackets::kPieceSize + head * (S::kHeadDim + 2);
  publish(piece + dim, first, tag), publish(piece + dim + 1, second, tag);
  if (dim == 0) publish(piece + S::kHeadDim, maximum, tag), publish(piece + S::kHeadDim + 1, sum, tag);
}

// One warp: 32 dims of a head, which ones by the block's split, over all pieces in order.
__device__ inline void sum_pieces(const DecodeThread& thread, const DecodeLayersParams& params,
                                  const DecodeLayerParams& layer, const DecodeAttentionTask& task, std::uint32_t tag) {
  using S = DecodeLayersKernel;
  constexpr int kColumns = S::kGroupHeads * S::kHeadDim / S::kSplits;
  static_assert(kColumns == 32 && S::kSplits <= 32, "a lane a dim, and a lane a piece");
  const int lane = thread.lane, head = task.split * kColumns / S::kHeadDim,
            dim = task.split * kColumns % S::kHeadDim + lane;
  const DecodePacket* pieces = params.work->packets + DecodePackets::kPieces +
                               task.kv_head * S::kSplits * DecodePackets::kPieceSize + head * (S::kHeadDim + 2);
  std::uint32_t out[S::kSplits], softmax[2];
  const DecodePacket* own = pieces + lane % S::kSplits * DecodePackets::kPieceSize + S::kHeadDim;
  await_single<2>([&](int i) { return own + i; }, tag, softmax);
  __syncwarp();
  await_single<S::kSplits>([&](int i) { return pieces + i * DecodePackets::kPieceSize + dim; }, tag, out);
  const float maximum_own = __uint_as_float(softmax[0]), sum_own = __uint_as_float(softmax[1]);
  float maximum = maximum_own;
#pragma unroll
  for (int offset = 1; offset < S::kSplits; offset *= 2)
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, offset));
  float sum = sink_weight(layer.sinks, task.kv_head * S::kGroupHeads + head, maximum, params.scale_log2), total = 0;
#pragma unroll
  for (int i = 0; i < S::kSplits; ++i) {
    const float factor = ptx::exp2_fast((__shfl_sync(0xffffffffu, maximum_own, i) - maximum) * params.scale_log2);
    sum = fmaf(__shfl_sync(0xffffffffu, sum_own, i), factor, sum);
    total = fmaf(__uint_as_float(out[i]), factor, total);
  }
  total = __fdividef(total, sum);
  const float neighbour = __shfl_xor_sync(0xffffffffu, total, 1);
  if (lane % 2 == 0) {
    publish(params.work->packets + DecodePackets::kAttended +
                ((task.kv_head * S::kGroupHeads + head) * S::kHeadDim + dim) / 2,
            ptx::pack_bf16(total, neighbour), tag);
  }
}

}  // namespace rose::ops::cuda
