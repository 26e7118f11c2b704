// Attention of single rows against long contexts (attention.h): decode, and the few rows of a draft. bf16, head_dim 64,
// 8 query heads a KV head.
//
// Bound: memory. A row reads 2 * context * kv_heads * 64 * 2 bytes once; 8 query heads share what they read. Measured
// read ceiling of an H200: 4.57 TB/s.
//
// Mapping: the work of all rows is one line of units (row, KV head, 64 positions), cut into equal runs, one a block:
// long contexts are split, short ones are joined, and every block does the same amount, whatever the lengths. A run
// covers at most two pieces of (row, KV head) pairs that others share, at its ends; those go to scratch, and the last
// block to finish a pair adds its pieces up, in order. So the result does not depend on timing, and nothing depends on
// the host.
//
// In a block one producer thread loads units page by page by TMA; four warps take 16 positions of each unit with
// mma.m16n8k16, keys as the 16 rows and the 8 heads as the 8 columns, so no row of the instruction is wasted:
// S^T = K Q^T, then O^T = V^T P^T. Each warp keeps its own running maximum; warps meet at the end of a piece.
// The sink enters the sum once, where the pieces have been added up.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/attention/attention_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"

namespace rose::ops::cuda {

// Result of part of a pair: running maximum (score units), sum and unnormalised output of each head.
struct DecodePiece {
  float maximum[8];
  float sum[8];
  float out[8][64];
};

struct alignas(1024) DecodeShared {
  using C = DecodeConfig;
  std::uint8_t keys[C::kStages][C::kUnitBytes];
  std::uint8_t values[C::kStages][C::kUnitBytes];
  DecodePiece pieces[C::kWarps];
  std::uint64_t full[C::kStages], empty[C::kStages];
  int arrived;  // blocks that had finished the pair before this one
};
static_assert(sizeof(DecodeShared) <= 113 * 1024, "two blocks an SM");

// A run of units within one pair.
struct DecodeSegment {
  int row;  // index into the list of decode rows
  int kv_head;
  int begin, end;  // units of the pair
  int units;       // of the whole pair
  long first;      // position of the pair's first unit in the line of all units
};

// The segment that starts at place `unit` of the line, cut at `end`. Rows are found by bisection in their unit offsets.
__device__ inline DecodeSegment decode_segment(const AttentionParams& params, long unit, long end) {
  int low = 0, high = params.decode_counts[0] - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<long>(params.decode_offsets[middle]) * params.kv_heads <= unit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  DecodeSegment segment;
  segment.row = low;
  const long before = static_cast<long>(params.decode_offsets[low]) * params.kv_heads;
  segment.units = params.decode_offsets[low + 1] - params.decode_offsets[low];
  segment.kv_head = static_cast<int>((unit - before) / segment.units);
  segment.first = before + static_cast<long>(segment.kv_head) * segment.units;
  segment.begin = static_cast<int>(unit - segment.first);
  segment.end = static_cast<int>(min(static_cast<long>(segment.units), end - segment.first));
  return segment;
}

// Positions a row sees: [begin, end); its first unit starts at begin rounded down to a page.
struct DecodeRow {
  int row, sequence, begin, end;
};

__device__ inline DecodeRow decode_row(const AttentionParams& params, int index) {
  const int4 entry = params.decode_rows[index];
  return {entry.x, entry.y, entry.z, entry.w};
}

// The line of all units, and how many blocks share it: never more than units, so that every block of a pair has a
// piece.
struct DecodeLine {
  long units;
  int blocks;
  __device__ long begin(int block) const { return units * block / blocks; }
  __device__ int block_of(long unit) const {
    int block = static_cast<int>(unit * blocks / units);
    while (begin(block + 1) <= unit) ++block;  // the division above may land one short
    while (begin(block) > unit) --block;
    return block;
  }
};

__device__ inline DecodeLine decode_line(const AttentionParams& params) {
  const long units = static_cast<long>(params.decode_offsets[params.decode_counts[0]]) * params.kv_heads;
  return {units, static_cast<int>(min(units, static_cast<long>(gridDim.x)))};
}

struct DecodeRun {
  long begin, end;
};

// --- producer
// ------------------------------------------------------------------------------------------------------------

__device__ inline void decode_produce(DecodeShared& shared, const AttentionParams& params, const DecodeRun& run) {
  using C = DecodeConfig;
  const int page_bytes = params.page_size * 128, pages_a_unit = C::kUnit / params.page_size;
  ptx::Ring<C::kStages> ring;
  for (long at = run.begin; at < run.end;) {
    const DecodeSegment segment = decode_segment(params, at, run.end);
    const DecodeRow row = decode_row(params, segment.row);
    const int* table =
        params.page_table + static_cast<long>(row.sequence) * params.pages_max - params.first_pages[row.sequence];
    const int last = (row.end - 1) / params.page_size;
    for (int unit = segment.begin; unit < segment.end; ++unit, ring.advance()) {
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      ptx::barrier_arrive_expect(&shared.full[ring.stage], 2 * C::kUnitBytes);
      const int page = row.begin / params.page_size + unit * pages_a_unit;
      for (int p = 0; p < pages_a_unit; ++p) {  // past the newest page: once more, masked but finite
        const int box = (table[min(page + p, last)] * params.kv_heads + segment.kv_head) * params.page_size;
        ptx::tma_load_2d(&params.keys, &shared.full[ring.stage], shared.keys[ring.stage] + p * page_bytes, 0, box,
                         ptx::kEvictFirst);
        ptx::tma_load_2d(&params.values, &shared.full[ring.stage], shared.values[ring.stage] + p * page_bytes, 0, box,
                         ptx::kEvictFirst);
      }
    }
    at += segment.end - segment.begin;
  }
}

// --- consumer
// ------------------------------------------------------------------------------------------------------------

// Byte offset of 16-byte piece `piece` (8 of them a row) of row `row` under the 128-byte swizzle.
__device__ inline std::uint32_t swizzled(int row, int piece) {
  return static_cast<std::uint32_t>(row * 128 + ((piece ^ (row & 7)) << 4));
}

// The query of one pair as the B operand of K Q^T: element pairs (d, d + 1) of head lane / 4.
struct DecodeQuery {
  std::uint32_t b[8];  // [step of 16 dims][half]
};

__device__ inline DecodeQuery load_query(const AttentionParams& params, int row, int kv_head) {
  const int lane = threadIdx.x % 32;
  const std::uint16_t* q =
      params.query_rows + (static_cast<long>(row) * params.heads + kv_head * 8 + lane / 4) * 64 + lane % 4 * 2;
  DecodeQuery query;
#pragma unroll
  for (int i = 0; i < 8; ++i) query.b[i] = *reinterpret_cast<const std::uint32_t*>(q + i * 8);
  return query;
}

struct DecodeState {
  float maximum[2], sum[2];  // heads lane % 4 * 2, + 1; the same in all lanes of equal lane % 4
  float out[4][4];           // [16 dims][m16n8 accumulator]: dims lane / 4, + 8; heads lane % 4 * 2, + 1
};

__device__ inline std::uint32_t transpose_8x8(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// 16 positions of a unit. `position` is that of the warp's first key; keys outside [begin, end) are hidden.
__device__ inline void decode_step(const std::uint8_t* keys, const std::uint8_t* values, const DecodeQuery& query,
                                   int warp, int position, const DecodeRow& row, float scale, DecodeState& state) {
  const int lane = threadIdx.x % 32, key = warp * 16;
  float s[4] = {0, 0, 0, 0};
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // A[16 keys, 16 dims]: rows lane % 16, dims 8 * (lane / 16)
    std::uint32_t a[4];
    ptx::ldmatrix_x4(a, ptx::shared_address(keys) + swizzled(key + lane % 16, step * 2 + lane / 16));
    ptx::mma_bf16(s, a, query.b[step * 2], query.b[step * 2 + 1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int p = position + lane / 4 + i / 2 * 8;
    if (p < row.begin || p >= row.end) s[i] = -INFINITY;
  }
  float factor[2];
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    float highest = fmaxf(s[head], s[head + 2]);
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
    highest = fmaxf(state.maximum[head], highest);
    // Nothing visible so far: keep the state, and every exponent at zero.
    const float safe = highest == -INFINITY ? 0.f : highest;
    factor[head] = ptx::exp2_fast((state.maximum[head] - safe) * scale);
    state.maximum[head] = highest;
    s[head] = ptx::exp2_fast((s[head] - safe) * scale);
    s[head + 2] = ptx::exp2_fast((s[head + 2] - safe) * scale);
    state.sum[head] = state.sum[head] * factor[head] + s[head] + s[head + 2];
  }
  const std::uint32_t p0 = transpose_8x8(ptx::pack_bf16(s[0], s[1]));  // keys lane % 4 * 2, + 1 of head lane / 4
  const std::uint32_t p1 = transpose_8x8(ptx::pack_bf16(s[2], s[3]));
#pragma unroll
  for (int dims = 0; dims < 4; ++dims) {  // A[16 dims, 16 keys] = V^T, transposed on load
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[dims][i] *= factor[i % 2];
    std::uint32_t a[4];
    const int within = lane % 8 + lane / 16 * 8;  // key of this lane's address
    ptx::ldmatrix_x4_transposed(a, ptx::shared_address(values) + swizzled(key + within, dims * 2 + lane / 8 % 2));
    ptx::mma_bf16(state.out[dims], a, p0, p1);
  }
}

// This warp's state as a piece in shared memory.
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
      piece.out[lane % 4 * 2 + head][dims * 16 + lane / 4] = state.out[dims][head];
      piece.out[lane % 4 * 2 + head][dims * 16 + lane / 4 + 8] = state.out[dims][head + 2];
    }
  }
}

// Four of a head's 64 numbers, of `count` pieces added up in order: thread t of 128 has head t / 16, dims t % 16 * 4.
struct DecodeSum {
  float maximum, sum, out[4];
};

template <class PieceAt>
__device__ inline DecodeSum add_pieces(int count, float scale, const PieceAt& piece_at) {
  const int thread = threadIdx.x % 128, head = thread / 16, dim = thread % 16 * 4;
  DecodeSum total{-INFINITY, 0, {0, 0, 0, 0}};
  for (int i = 0; i < count; ++i) total.maximum = fmaxf(total.maximum, piece_at(i).maximum[head]);
  const float safe = total.maximum == -INFINITY ? 0.f : total.maximum;
  for (int i = 0; i < count; ++i) {
    const DecodePiece& piece = piece_at(i);
    const float factor = ptx::exp2_fast((piece.maximum[head] - safe) * scale);
    total.sum += piece.sum[head] * factor;
    const float4 out = *reinterpret_cast<const float4*>(&piece.out[head][dim]);
    total.out[0] += out.x * factor;
    total.out[1] += out.y * factor;
    total.out[2] += out.z * factor;
    total.out[3] += out.w * factor;
  }
  return total;
}

// The sink joins the sum, once; then the result leaves.
__device__ inline void store_row(const AttentionParams& params, const DecodeRow& row, int kv_head,
                                 const DecodeSum& total) {
  const int thread = threadIdx.x % 128, head = kv_head * 8 + thread / 16, dim = thread % 16 * 4;
  const float sink = ptx::bf16_to_float(params.sinks[head]) * params.inverse_scale;
  const float maximum = fmaxf(total.maximum, sink);
  const float factor = ptx::exp2_fast((total.maximum - maximum) * params.scale_log2);
  const float inverse = factor / (total.sum * factor + ptx::exp2_fast((sink - maximum) * params.scale_log2));
  const uint2 bits = {ptx::pack_bf16(total.out[0] * inverse, total.out[1] * inverse),
                      ptx::pack_bf16(total.out[2] * inverse, total.out[3] * inverse)};
  *reinterpret_cast<uint2*>(params.out + (static_cast<long>(row.row) * params.heads + head) * 64 + dim) = bits;
}

// A pair shared by several blocks: leave the piece in scratch; the last to arrive adds all of them, in block order. A
// block has two slots: a pair that began before its run (0), or that goes on after it (1).
__device__ inline void share_piece(DecodeShared& shared, const AttentionParams& params, const DecodeSegment& segment,
                                   const DecodeRow& row, const DecodeSum& mine) {
  const int thread = threadIdx.x % 128, head = thread / 16, dim = thread % 16 * 4;
  DecodePiece* scratch = static_cast<DecodePiece*>(params.decode_scratch);
  DecodePiece& slot = scratch[blockIdx.x * 2 + (segment.begin == 0 ? 1 : 0)];
  if (dim == 0) {
    slot.maximum[head] = mine.maximum;
    slot.sum[head] = mine.sum;
  }
  *reinterpret_cast<float4*>(&slot.out[head][dim]) = {mine.out[0], mine.out[1], mine.out[2], mine.out[3]};
  __threadfence();
  ptx::named_sync(1, 128);
  const DecodeLine line = decode_line(params);
  const int first = line.block_of(segment.first);
  const int last = line.block_of(segment.first + segment.units - 1);
  int* counter = &params.decode_arrivals[segment.row * params.kv_heads + segment.kv_head];
  if (thread == 0) shared.arrived = atomicAdd(counter, 1);
  ptx::named_sync(1, 128);
  if (shared.arrived != last - first) return;
  __threadfence();
  if (thread == 0) *counter = 0;  // ready for the next launch
  store_row(params, row, segment.kv_head,
            add_pieces(last - first + 1, params.scale_log2,
                       [&](int i) -> const DecodePiece& { return scratch[(first + i) * 2 + (i == 0 ? 1 : 0)]; }));
}

__device__ inline void decode_consume(DecodeShared& shared, const AttentionParams& params, const DecodeRun& run) {
  using C = DecodeConfig;
  const int warp = threadIdx.x / 32 % 4;
  ptx::Ring<C::kStages> ring;
  for (long at = run.begin; at < run.end;) {
    const DecodeSegment segment = decode_segment(params, at, run.end);
    const DecodeRow row = decode_row(params, segment.row);
    const DecodeQuery query = load_query(params, row.row, segment.kv_head);
    DecodeState state{{-INFINITY, -INFINITY}, {0, 0}, {}};
    const int base = row.begin / params.page_size * params.page_size;
    for (int unit = segment.begin; unit < segment.end; ++unit, ring.advance()) {
      ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
      decode_step(shared.keys[ring.stage], shared.values[ring.stage], query, warp, base + unit * C::kUnit + warp * 16,
                  row, params.scale_log2, state);
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::barrier_arrive(&shared.empty[ring.stage]);
    }
    write_piece(state, shared.pieces[warp]);
    ptx::named_sync(1, 128);
    const DecodeSum mine =
        add_pieces(C::kWarps, params.scale_log2, [&](int i) -> const DecodePiece& { return shared.pieces[i]; });
    if (segment.end - segment.begin == segment.units) {
      store_row(params, row, segment.kv_head, mine);
    } else {
      share_piece(shared, params, segment, row, mine);
    }
    ptx::named_sync(1, 128);  // the pieces may be overwritten
    at += segment.end - segment.begin;
  }
}

__global__ void __launch_bounds__(DecodeConfig::kThreads, 2)
    attention_decode_kernel(const __grid_constant__ AttentionParams params) {
  using C = DecodeConfig;
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], C::kWarps);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::dependency_wait();
  if (params.decode_counts[0] == 0) return;
  const DecodeLine line = decode_line(params);
  if (static_cast<int>(blockIdx.x) >= line.blocks) return;
  const DecodeRun run{line.begin(blockIdx.x), line.begin(blockIdx.x + 1)};
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) decode_produce(shared, params, run);
  } else {
    decode_consume(shared, params, run);
  }
  ptx::dependents_launch();
}

inline void launch_attention_decode_instance(const AttentionParams& params, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&attention_decode_kernel, "attention_decode",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(DecodeConfig::kThreads),
                      .shared_bytes = sizeof(DecodeShared) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
