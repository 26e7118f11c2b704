// Attention of single rows against long contexts (attention.h): decode, and the few rows of a draft. bf16, head_dim 64,
// 8 query heads a KV head; keys and values bf16 or e4m3.
//
// Bound: memory. A row reads 2 * context * kv_heads * 64 * 2 bytes once; 8 query heads share what they read. Measured
// read ceiling of an H200: 4.57 TB/s.
//
// Mapping: the work of all rows is one line of items (row, KV head, 64 positions or a whole window), cut into equal
// runs, one a block: long contexts are split, short ones are joined, and every block does the same amount, whatever the
// lengths. The line and the runs are made once a step (attention_plan.cu). A run covers at most two pieces of (row, KV
// head) pairs that others share, at its ends; those go to scratch, and the last block to finish a pair adds its pieces
// up, in order. So the result does not depend on timing, and nothing depends on the host.
//
// In a block one producer warp loads units by TMA, a page of a head (4 KB) a box; four warps take 16 positions of each
// unit with mma.m16n8k16, keys as the 16 rows and the 8 heads as the 8 columns, so no row of the instruction is wasted:
// S^T = K Q^T, then O^T = V^T P^T. Each warp keeps its own running maximum; warps meet at the end of a piece.
// The sink enters the sum once, where the pieces have been added up.
//
// Overlap with the kernel before: plan, page table and all positions but this step's new ones are older than that
// kernel, so they are read before it has ended (it waits for its own predecessor before it lets this one start); q and
// the new positions are read after.
//
// e4m3: a page of a head is half as large, two positions share a 128-byte line, and elements are widened in registers,
// both exactly: keys to bf16, to meet bf16 queries; values to f16, to meet probabilities, which lie in [0, 1], in f16.
// An 8x8 matrix of ldmatrix then holds 16 elements a row: a lane's four neighbouring bytes become two pairs of dims
// (the query is dealt in the same order), and of values two neighbouring dims of two keys (rows r and r + 8 of the
// product are dims 2r and 2r + 1).
//
// What lies past a context's end may be anything, NaN too: scores there are replaced, and values are cleared after they
// have been read, in the units that reach past either end only.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/softmax.cuh"
#include "ops/ptx/tma.cuh"

namespace rose::ops::cuda {

// Result of part of a pair: running maximum (score units), sum and unnormalised output of each head.
struct DecodePiece {
  float maximum[8];
  float sum[8];
  float out[8][64];
};

template <class C>
struct alignas(1024) DecodeShared {
  std::uint8_t keys[C::kStages][C::kUnitBytes];
  std::uint8_t values[C::kStages][C::kUnitBytes];
  DecodePiece pieces[C::kWarps];
  std::uint64_t full[C::kStages], empty[C::kStages];
  int arrived;  // blocks that had finished the pair before this one
};

// What the plan says is read past the first-level cache, which may hold a former step's.
template <class T>
__device__ inline T load_planned(const T* from) {
  static_assert(sizeof(T) % 16 == 0);
  T value;
#pragma unroll
  for (std::size_t i = 0; i < sizeof(T) / 16; ++i)
    reinterpret_cast<int4*>(&value)[i] = __ldcg(reinterpret_cast<const int4*>(from) + i);
  return value;
}

// The part of a run that lies in one pair (row, KV head), and the walk from pair to pair.
struct DecodeWalk {
  DecodeRow row;
  int kv_head;
  int begin, end;  // items of the pair
  int left;        // items of the run after these

  __device__ explicit DecodeWalk(const DecodeRun& run) : row(run.row), kv_head(run.kv_head), begin(run.item) {
    end = min(row.items, begin + run.items);
    left = run.items - (end - begin);
  }
  __device__ bool advance(const AttentionParams& params) {
    if (left == 0) return false;
    if (++kv_head == params.kv_heads) {
      row = load_planned(&params.decode_rows[row.index + 1]);
      kv_head = 0;
    }
    begin = 0;
    end = min(row.items, left);
    left -= end;
    return true;
  }
  // Units of these items, and the position of unit 0. The last item of a pair may have fewer units.
  __device__ int base(const AttentionParams& params) const { return row.begin / params.box_rows * params.box_rows; }
  __device__ int unit_begin(const AttentionParams& params) const { return begin * params.decode_item_units; }
  __device__ int unit_end(const AttentionParams& params) const {
    return min(end * params.decode_item_units,
               (row.end - base(params) + DecodeConfig::kUnit - 1) / DecodeConfig::kUnit);
  }
};

// --- producer
// ------------------------------------------------------------------------------------------------------------

// By a whole warp: each lane looks up one box's page, for 32 boxes at a time, so that no copy waits for its own lookup.
template <class C>
__device__ inline void decode_produce(DecodeShared<C>& shared, const AttentionParams& params, const DecodeRun& run) {
  const int lane = threadIdx.x % 32, boxes_a_unit = C::kUnit / params.box_rows;
  const int boxes_a_page = params.page_size / params.box_rows;
  ptx::Ring<C::kStages> ring;
  bool waited = false;
  DecodeWalk walk(run);
  do {
    const int first = walk.row.begin / params.box_rows, last = (walk.row.end - 1) / params.box_rows;
    const int unit_end = walk.unit_end(params);
    int known = -1, row_of_lane = 0;  // boxes [known, known + 32) of the pair are in the lanes
    for (int unit = walk.unit_begin(params); unit < unit_end; ++unit, ring.advance()) {
      const int box = first + unit * boxes_a_unit;
      if (known < 0 || box + boxes_a_unit > known + 32) {
        known = box;
        const int own = min(box + lane, last);  // past the newest: once more; hidden
        const int page = __ldcg(params.page_table + walk.row.table + own / boxes_a_page);
        row_of_lane = (page * params.kv_heads + walk.kv_head) * params.page_size + own % boxes_a_page * params.box_rows;
      }
      if (!waited && min(box + boxes_a_unit, last + 1) * params.box_rows > walk.row.fresh) {
        ptx::dependency_wait();
        waited = true;
      }
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      if (lane == 0) ptx::barrier_arrive_expect(&shared.full[ring.stage], 2 * C::kUnitBytes);
      for (int b = 0; b < boxes_a_unit; ++b) {
        const int row = __shfl_sync(0xffffffffu, row_of_lane, box - known + b);
        if (lane == 0) {
          const int offset = b * params.box_rows * C::kRowBytes;
          const int line = row / (128 / C::kRowBytes);
          ptx::tma_load_2d(&params.keys, &shared.full[ring.stage], shared.keys[ring.stage] + offset, 0, line,
                           C::kPolicy);
          ptx::tma_load_2d(&params.values, &shared.full[ring.stage], shared.values[ring.stage] + offset, 0, line,
                           C::kPolicy);
        }
        __syncwarp();
      }
    }
  } while (walk.advance(params));
}

// --- consumer
// ------------------------------------------------------------------------------------------------------------

// Byte offset of 16-byte piece `piece` (8 of them a row) of row `row` under the 128-byte swizzle.
__device__ inline std::uint32_t swizzled(int row, int piece) {
  return static_cast<std::uint32_t>(row * 128 + ((piece ^ (row & 7)) << 4));
}

// The same of e4m3 rows: piece `piece` of 4.
__device__ inline std::uint32_t swizzled_e4m3(int row, int piece) { return swizzled(row / 2, row % 2 * 4 + piece); }

// The query of one pair as the B operand of K Q^T: element pairs (d, d + 1) of head lane / 4; of each 16 dims a lane
// has lane % 4 * 2 and those 8 further on, or, beside e4m3 keys, four neighbours.
struct DecodeQuery {
  std::uint32_t b[8];  // [step of 16 dims][half]
};

template <bool kE4m3>
__device__ inline DecodeQuery load_query(const AttentionParams& params, int row, int kv_head) {
  const int lane = threadIdx.x % 32;
  const std::uint16_t* q = params.query_rows + (static_cast<long>(row) * params.heads + kv_head * 8 + lane / 4) * 64 +
                           lane % 4 * (kE4m3 ? 4 : 2);
  DecodeQuery query;
  if constexpr (kE4m3) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint2 bits = *reinterpret_cast<const uint2*>(q + step * 16);
      query.b[step * 2] = bits.x, query.b[step * 2 + 1] = bits.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) query.b[i] = *reinterpret_cast<const std::uint32_t*>(q + i * 8);
  }
  return query;
}

struct DecodeState {
  float maximum[2], sum[2];  // heads lane % 4 * 2, + 1; the same in all lanes of equal lane % 4
  float out[4][4];           // [16 dims][m16n8 accumulator]: dims lane / 4, + 8 (e4m3: lane / 4 * 2, + 1);
                             // heads lane % 4 * 2, + 1
};

// s += K Q^T for 16 keys of a unit, from `key` on.
__device__ inline void add_scores_e4m3(const std::uint8_t* keys, int key, const DecodeQuery& query, float (&s)[4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {  // 32 dims
    std::uint32_t codes[4];               // [16 dims][8 keys]
    ptx::ldmatrix_x4(codes, ptx::shared_address(keys) + swizzled_e4m3(key + lane % 16, pair * 2 + lane / 16));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t a[4] = {ptx::e4m3_to_bf16(codes[half * 2]), ptx::e4m3_to_bf16(codes[half * 2 + 1]),
                                  ptx::e4m3_to_bf16(codes[half * 2] >> 16),
                                  ptx::e4m3_to_bf16(codes[half * 2 + 1] >> 16)};
      const int step = pair * 2 + half;
      ptx::mma_bf16(s, a, query.b[step * 2], query.b[step * 2 + 1]);
    }
  }
}

// 32 dims of V^T for 16 keys of a unit, twice the A operand [16 dims, 16 keys], in f16. A matrix, transposed on load,
// gives a lane dims 2r and 2r + 1 (r = lane / 4) of key lane % 4 * 2, then of the next.
__device__ inline void load_values_e4m3(const std::uint8_t* values, int key, int pair, std::uint32_t (&a)[2][4]) {
  const int lane = threadIdx.x % 32;
  std::uint32_t codes[4];  // [16 dims][8 keys]
  ptx::ldmatrix_x4_transposed(codes,
                              ptx::shared_address(values) + swizzled_e4m3(key + lane % 16, pair * 2 + lane / 16));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t by_dim = __byte_perm(codes[i], 0, 0x3120);  // both keys of dim 2r, both of 2r + 1
    a[i / 2][i % 2 * 2] = ptx::e4m3_to_f16(by_dim);
    a[i / 2][i % 2 * 2 + 1] = ptx::e4m3_to_f16(by_dim >> 16);
  }
}

// 16 positions of a unit, the first of them `position`; where kEdge, those outside [begin, end) are hidden, and values
// there cleared: what is multiplied by a probability of zero must be a number.
template <bool kE4m3, bool kEdge>
__device__ inline void decode_step(const std::uint8_t* keys, const std::uint8_t* values, const DecodeQuery& query,
                                   int position, int begin, int end, float scale, DecodeState& state) {
  const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 16;
  float s[4] = {0, 0, 0, 0};
  if constexpr (kE4m3) {
    add_scores_e4m3(keys, key, query, s);
  } else {
#pragma unroll
    for (int step = 0; step < 4; ++step) {  // A[16 keys, 16 dims]: rows lane % 16, dims 8 * (lane / 16)
      std::uint32_t a[4];
      ptx::ldmatrix_x4(a, ptx::shared_address(keys) + swizzled(key + lane % 16, step * 2 + lane / 16));
      ptx::mma_bf16(s, a, query.b[step * 2], query.b[step * 2 + 1]);
    }
  }
  if (kEdge) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int p = position + lane / 4 + i / 2 * 8;
      if (p < begin || p >= end) s[i] = -INFINITY;
    }
  }
  float factor[2];
  ptx::softmax_step(s, scale, state.maximum, state.sum, factor);
  const auto pack = [](float low, float high) { return kE4m3 ? ptx::pack_f16(low, high) : ptx::pack_bf16(low, high); };
  const std::uint32_t p0 = ptx::transpose_8x8(pack(s[0], s[1]));  // keys lane % 4 * 2, + 1 of head lane / 4
  const std::uint32_t p1 = ptx::transpose_8x8(pack(s[2], s[3]));
  std::uint32_t seen[2] = {0xffffffffu, 0xffffffffu};  // of this lane's keys in A: lane % 4 * 2, + 1; and 8 on
  if (kEdge) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int p = position + lane % 4 * 2 + half * 8;
      seen[half] = (p >= begin && p < end ? 0xffffu : 0u) | (p + 1 >= begin && p + 1 < end ? 0xffff0000u : 0u);
    }
  }
  if constexpr (kE4m3) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t a[2][4];
      load_values_e4m3(values, key, pair, a);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dims = pair * 2 + half;
#pragma unroll
        for (int i = 0; i < 4; ++i) state.out[dims][i] *= factor[i % 2];
        if (kEdge) a[half][0] &= seen[0], a[half][1] &= seen[0], a[half][2] &= seen[1], a[half][3] &= seen[1];
        ptx::mma_f16(state.out[dims], a[half], p0, p1);
      }
    }
  } else {
#pragma unroll
    for (int dims = 0; dims < 4; ++dims) {  // A[16 dims, 16 keys] = V^T, transposed on load
#pragma unroll
      for (int i = 0; i < 4; ++i) state.out[dims][i] *= factor[i % 2];
      std::uint32_t a[4];
      const int within = lane % 8 + lane / 16 * 8;  // key of this lane's address
      ptx::ldmatrix_x4_transposed(a, ptx::shared_address(values) + swizzled(key + within, dims * 2 + lane / 8 % 2));
      if (kEdge) a[0] &= seen[0], a[1] &= seen[0], a[2] &= seen[1], a[3] &= seen[1];
      ptx::mma_bf16(state.out[dims], a, p0, p1);
    }
  }
}

// This warp's state as a piece in shared memory.
template <bool kE4m3>
__device__ inline void write_piece(const DecodeState& state, DecodePiece& piece) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    float sum = state.sum[head];
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane < 4) {
      piece.maximum[lane * 2 + head] = state.maximum[head];
      piece.sum[lane * 2 + head] = sum;
    }
#pragma unroll
    for (int dims = 0; dims < 4; ++dims) {
      piece.out[lane % 4 * 2 + head][dims * 16 + (kE4m3 ? lane / 4 * 2 : lane / 4)] = state.out[dims][head];
      piece.out[lane % 4 * 2 + head][dims * 16 + (kE4m3 ? lane / 4 * 2 + 1 : lane / 4 + 8)] = state.out[dims][head + 2];
    }
  }
}

// Four of a head's 64 numbers, of several pieces added up: thread t of 128 has head t / 16, dims t % 16 * 4.
struct DecodeSum {
  float maximum, sum, out[4];

  __device__ void add(const float4& more, float more_sum, float factor) {
    sum += more_sum * factor;
    out[0] += more.x * factor;
    out[1] += more.y * factor;
    out[2] += more.z * factor;
    out[3] += more.w * factor;
  }
};

__device__ inline float finite_or_zero(float maximum) { return maximum == -INFINITY ? 0.f : maximum; }

template <class C>
__device__ inline DecodeSum add_warps(const DecodeShared<C>& shared, float scale) {
  const int thread = threadIdx.x % 128, head = thread / 16, dim = thread % 16 * 4;
  DecodeSum total{-INFINITY, 0, {0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < C::kWarps; ++i) total.maximum = fmaxf(total.maximum, shared.pieces[i].maximum[head]);
  const float safe = finite_or_zero(total.maximum);
#pragma unroll
  for (int i = 0; i < C::kWarps; ++i) {
    const DecodePiece& piece = shared.pieces[i];
    total.add(*reinterpret_cast<const float4*>(&piece.out[head][dim]), piece.sum[head],
              ptx::exp2_fast((piece.maximum[head] - safe) * scale));
  }
  return total;
}

// Pieces that other blocks left in scratch, in order, kBatch loads in flight: a pair has up to a few dozen, and one
// after the other each would cost a trip to memory. `piece_at` gives a place in scratch.
template <class PieceAt>
__device__ inline DecodeSum add_blocks(int count, float scale, const PieceAt& piece_at) {
  constexpr int kBatch = 8;
  const int thread = threadIdx.x % 128, head = thread / 16, dim = thread % 16 * 4;
  DecodeSum total{-INFINITY, 0, {0, 0, 0, 0}};
  for (int first = 0; first < count; first += kBatch) {
    float maxima[kBatch], sums[kBatch];
    float4 outs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {  // past the last: that one again, with no weight
      const DecodePiece* piece = piece_at(min(first + i, count - 1));
      maxima[i] = __ldcg(&piece->maximum[head]);
      sums[i] = __ldcg(&piece->sum[head]);
      outs[i] = __ldcg(reinterpret_cast<const float4*>(&piece->out[head][dim]));
    }
    float maximum = total.maximum;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) maximum = fmaxf(maximum, maxima[i]);
    const float safe = finite_or_zero(maximum), factor = ptx::exp2_fast((total.maximum - safe) * scale);
    total.maximum = maximum;
    total.sum *= factor;
#pragma unroll
    for (int i = 0; i < 4; ++i) total.out[i] *= factor;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < count) total.add(outs[i], sums[i], ptx::exp2_fast((maxima[i] - safe) * scale));
    }
  }
  return total;
}

// The sink joins the sum, once; then the result leaves.
__device__ inline void store_row(const AttentionParams& params, const DecodeRow& row, int kv_head,
                                 const DecodeSum& total) {
  const int thread = threadIdx.x % 128, head = kv_head * 8 + thread / 16, dim = thread % 16 * 4;
  const float sink = ptx::bf16_to_float(params.sinks[head]) * 1.44269504f, own = total.maximum * params.scale_log2;
  const float maximum = fmaxf(own, sink);
  const float factor = ptx::exp2_fast(own - maximum);
  const float inverse = factor / (total.sum * factor + ptx::exp2_fast(sink - maximum));
  const uint2 bits = {ptx::pack_bf16(total.out[0] * inverse, total.out[1] * inverse),
                      ptx::pack_bf16(total.out[2] * inverse, total.out[3] * inverse)};
  *reinterpret_cast<uint2*>(params.out + (static_cast<long>(row.row) * params.heads + head) * 64 + dim) = bits;
}

// A pair shared by several blocks: leave the piece in scratch; the last to arrive adds all of them, in block order. A
// block has two slots: a pair that began before its run (0), or that goes on after it (1).
template <class C>
__device__ inline void share_piece(DecodeShared<C>& shared, const AttentionParams& params, const DecodeWalk& walk,
                                   int length, const DecodeSum& mine) {
  const int thread = threadIdx.x % 128, head = thread / 16, dim = thread % 16 * 4;
  DecodePiece* scratch = static_cast<DecodePiece*>(params.decode_scratch);
  DecodePiece& slot = scratch[blockIdx.x * 2 + (walk.begin == 0 ? 1 : 0)];
  if (dim == 0) {
    slot.maximum[head] = mine.maximum;
    slot.sum[head] = mine.sum;
  }
  *reinterpret_cast<float4*>(&slot.out[head][dim]) = {mine.out[0], mine.out[1], mine.out[2], mine.out[3]};
  ptx::named_sync(1, 128);
  const int item = walk.row.before + walk.kv_head * walk.row.items;  // the pair's first, in the line of all
  const int first = item / length, last = (item + walk.row.items - 1) / length;
  if (thread == 0) {
    __threadfence();  // for the whole block: the barrier came before
    int* counter = &params.decode_arrivals[walk.row.index * params.kv_heads + walk.kv_head];
    shared.arrived = atomicAdd(counter, 1);
    if (shared.arrived == last - first) *counter = 0;  // ready for the next launch
    __threadfence();
  }
  ptx::named_sync(1, 128);
  if (shared.arrived != last - first) return;
  store_row(params, walk.row, walk.kv_head, add_blocks(last - first + 1, params.scale_log2, [&](int i) {
              return &scratch[(first + i) * 2 + (i == 0 ? 1 : 0)];
            }));
}

template <class C>
__device__ inline void decode_consume(DecodeShared<C>& shared, const AttentionParams& params, const DecodeRun& run) {
  const int warp = threadIdx.x / 32;
  ptx::dependency_wait();
  ptx::dependents_launch();
  ptx::Ring<C::kStages> ring;
  DecodeWalk walk(run);
  do {
    const DecodeQuery query = load_query<C::kE4m3>(params, walk.row.row, walk.kv_head);
    DecodeState state{{-INFINITY, -INFINITY}, {0, 0}, {}};
    const int base = walk.base(params), unit_end = walk.unit_end(params);
    for (int unit = walk.unit_begin(params); unit < unit_end; ++unit, ring.advance()) {
      const int position = base + unit * C::kUnit;
      ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
      if (position >= walk.row.begin && position + C::kUnit <= walk.row.end) {
        decode_step<C::kE4m3, false>(shared.keys[ring.stage], shared.values[ring.stage], query, 0, 0, 0,
                                     params.scale_log2, state);
      } else {
        decode_step<C::kE4m3, true>(shared.keys[ring.stage], shared.values[ring.stage], query, position + warp * 16,
                                    walk.row.begin, walk.row.end, params.scale_log2, state);
      }
      __syncwarp();
      ptx::barrier_arrive_warp(&shared.empty[ring.stage]);
    }
    write_piece<C::kE4m3>(state, shared.pieces[warp]);
    ptx::named_sync(1, 128);
    const DecodeSum mine = add_warps(shared, params.scale_log2);
    if (walk.end - walk.begin == walk.row.items) {
      store_row(params, walk.row, walk.kv_head, mine);
    } else {
      share_piece(shared, params, walk, run.length, mine);
    }
    ptx::named_sync(1, 128);  // the pieces may be overwritten
  } while (walk.advance(params));
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_decode_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared<C>*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  const DecodeRun run = load_planned(&params.decode_runs[blockIdx.x]);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], C::kWarps * ptx::kWarpArrivals);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  if (run.items == 0) {  // still wait: who follows may rely on everything before this kernel having ended
    ptx::dependency_wait();
    return;
  }
  if (threadIdx.x >= C::kWarps * 32) {
    decode_produce(shared, params, run);
  } else {
    decode_consume(shared, params, run);
  }
}

template <class C>
void launch_attention_decode_instance(const AttentionParams& params, cudaStream_t stream) {
  static_assert(C::kWarps == 4, "the pieces of a pair are added up by 128 threads");
  rose::cuda::launch(&attention_decode_kernel<C>, "attention_decode",
                     {.grid = dim3(static_cast<unsigned>(params.decode_blocks)),
                      .block = dim3(C::kThreads),
                      .shared_bytes = sizeof(DecodeShared<C>) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
