// All layers for one row (decode_layers.h), in one kernel of one block a multiprocessor.
//
// Bound: bytes. A layer of 120b reads 53 MB of dense weights and 53 MB of the four experts: 24 us at 4.46 TB/s. As
// kernels one behind another the same layer takes 60 us, because memory is idle while each of them starts, waits for
// the row and drains. Here it is read all the time: a warp of every block copies weights into shared memory as far
// ahead as that reaches (decode_layers_weights.cuh), whatever the other warps wait for.
//
// Mapping. Every block has the same share of the features of every product, so the residual of its features never
// leaves its registers. What the next product needs of the others goes through packets in L2 (decode_layers_exchange):
//
//   phase      needs                        makes                     gives to all
//   qkv        residual                     norm, qkv + bias          qkv
//   attention  q, k, v of a KV head         RoPE, append, attention   attended (long contexts: pieces first)
//   output     attended                     residual += output        residual
//   route      residual                     norm, one router logit    logits
//   gate_up    all logits                   four experts, swiglu      activations
//   down       activations                  residual += experts       residual
//
// Numbers. The row enters norms and products in bf16, as with the other kernels; the residual is summed in f32, qkv and
// sums are f32. A row's result depends on nothing but the row: sums have a fixed order, and nothing counts arrivals.
#pragma once

#include <climits>
#include <cstddef>

#include "device/cuda/launch.cuh"
#include "ops/decode_layers/decode_layers_attention.cuh"
#include "ops/decode_layers/decode_layers_exchange.cuh"
#include "ops/decode_layers/decode_layers_products.cuh"
#include "ops/decode_layers/decode_layers_weights.cuh"
#include "ops/ptx/choose.cuh"
#include "ops/ptx/swiglu.cuh"
#include "ops/ptx/turn.cuh"

namespace rose::ops::cuda {

struct alignas(128) DecodeLayersShared {
  using S = DecodeLayersKernel;
  using R = DecodeRingShape;

  DecodeStages stages;
  // One place for what is needed one after another: parts of attention; attended; scales of the experts; activations,
  // once gate_up is done with its scales and x.
  union alignas(128) {
    DecodePart parts[S::kAttentionWarps];
    uint4 attended[S::kAttended / 8];
    struct {
      DecodeScales<R::kShareMost> down_scales;
      union {
        struct {
          DecodeScales<2 * R::kShareMost> gate_up_scales;
          union {
            uint4 x[S::kHidden / 8];  // normed row, bf16
            DecodeQkv qkv;            // while x is not needed
          };
        };
        uint4 activations[S::kTop][S::kIntermediate / 8];
      };
    };
  };
  DecodeSums sums;
  DecodeTurns turns;
  float squares[S::kWarps];
  float y[R::kShareMost];  // of the experts, for the features of the block
  std::int32_t experts[S::kTop];
  float weights[S::kTop];
  std::uint64_t routed, gate_up_full, down_full;
};
static_assert(sizeof(DecodeLayersShared) <= 227 * 1024);
static_assert(offsetof(DecodeLayersShared, x) - offsetof(DecodeLayersShared, parts) >=
              sizeof(DecodeLayersShared::parts));

// What does not change from layer to layer.
struct DecodeRow {
  DecodeShare qkv, features;
  int position, context;

  __device__ explicit DecodeRow(const DecodeLayersParams& params)
      : qkv(DecodeLayersKernel::kQkv / 2, blockIdx.x),
        features(DecodeLayersKernel::kHidden / 2, blockIdx.x),
        position(*params.position),
        context(max(1, *params.context_length)) {}
};

// --- loading warp
// --------------------------------------------------------------------------------------------------------

__device__ inline void decode_load(DecodeLayersShared& shared, const DecodeLayersParams& params, const DecodeRow& row) {
  using S = DecodeLayersKernel;
  using R = DecodeRingShape;
  DecodeLoader loader(shared.stages);
  load_qkv(loader, params.layer[0].qkv, row.qkv, 0, R::kEarly);
  for (int i = 0; i < params.layers; ++i) {
    const DecodeLayerParams& layer = params.layer[i];
    load_qkv(loader, layer.qkv, row.qkv, R::kEarly, INT_MAX / R::kQkvRows);
    load_output(loader, layer.output, row.features);
    if (static_cast<int>(blockIdx.x) < params.experts) {
      loader.dense(false, layer.router + static_cast<long>(blockIdx.x) * S::kHidden, R::kRouterBytes);
    }
    ptx::barrier_wait(&shared.routed, i & 1);
    int experts[S::kTop];
#pragma unroll
    for (int e = 0; e < S::kTop; ++e) experts[e] = shared.experts[e];
    load_scales(shared.gate_up_scales, &shared.gate_up_full, layer.gate_up_scales, experts, 2 * S::kIntermediate,
                2 * row.features.begin, 2 * row.features.count);
    load_expert_rows(loader, layer.gate_up, experts, 2 * S::kIntermediate, 2 * row.features.begin,
                     2 * row.features.count);
    // For the time in which gate_up comes to its end and the blocks exchange activations.
    if (i + 1 < params.layers) load_qkv(loader, params.layer[i + 1].qkv, row.qkv, 0, R::kEarly);
    load_scales(shared.down_scales, &shared.down_full, layer.down_scales, experts, S::kHidden, row.features.begin,
                row.features.count);
    load_expert_rows(loader, layer.down, experts, S::kHidden, row.features.begin, row.features.count);
  }
}

// --- norm
// ----------------------------------------------------------------------------------------------------------------

// Four features of a thread: those of its pairs of packets, thread and thread + kConsumers.
struct DecodeFours {
  static constexpr int kAll = DecodeLayersKernel::kHidden / 4;
  static constexpr int kThread = (kAll + DecodeLayersKernel::kConsumers - 1) / DecodeLayersKernel::kConsumers;
  uint2 bits[kThread] = {};  // bf16; zeros past the last

  // Of a row of bf16 in memory that this kernel does not write.
  __device__ static DecodeFours read(const DecodeThread& thread, const std::uint16_t* row) {
    DecodeFours fours;
#pragma unroll
    for (int i = 0; i < kThread; ++i) {
      const int at = thread.index + i * DecodeLayersKernel::kConsumers;
      if (at < kAll) fours.bits[i] = __ldg(reinterpret_cast<const uint2*>(row) + at);
    }
    return fours;
  }
};

// The residual that all blocks have published.
__device__ inline DecodeFours await_residual(const DecodeThread& thread, const DecodePacket* packets,
                                             std::uint32_t tag) {
  consumers_sync();
  DecodeFours residual;
  gather_pairs<DecodeFours::kAll>(
      thread.index, tag, [&](int pair) { return packets + 2 * pair; },
      [&](int turn, int, std::uint32_t first, std::uint32_t second) {
        residual.bits[turn] = {first, second};
      });
  return residual;
}

// x = residual / rms * weight, in bf16, in shared memory.
__device__ inline void norm_row(const DecodeThread& thread, DecodeLayersShared& shared, const DecodeFours& residual,
                                const DecodeFours& weight, float epsilon) {
  using S = DecodeLayersKernel;
  float square = 0;
#pragma unroll
  for (const uint2& r : residual.bits) {
    square = fmaf(ptx::bf16_low(r.x), ptx::bf16_low(r.x), square);
    square = fmaf(ptx::bf16_high(r.x), ptx::bf16_high(r.x), square);
    square = fmaf(ptx::bf16_low(r.y), ptx::bf16_low(r.y), square);
    square = fmaf(ptx::bf16_high(r.y), ptx::bf16_high(r.y), square);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) square += __shfl_xor_sync(0xffffffffu, square, offset);
  if (thread.lane == 0) shared.squares[thread.warp] = square;
  consumers_sync();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < S::kWarps; ++warp) sum += shared.squares[warp];
  const float scale = rsqrtf(sum * (1.f / S::kHidden) + epsilon);
  const auto pair = [&](std::uint32_t r, std::uint32_t w) {
    return ptx::pack_bf16(ptx::bf16_low(r) * scale * ptx::bf16_low(w), ptx::bf16_high(r) * scale * ptx::bf16_high(w));
  };
#pragma unroll
  for (int i = 0; i < DecodeFours::kThread; ++i) {
    const int at = thread.index + i * S::kConsumers;
    const uint2 &r = residual.bits[i], &w = weight.bits[i];
    if (at < DecodeFours::kAll) reinterpret_cast<uint2*>(shared.x)[at] = {pair(r.x, w.x), pair(r.y, w.y)};
  }
  consumers_sync();
}

// --- one layer
// -----------------------------------------------------------------------------------------------------------

// The warps that compute. Warp w owns features 2 w and 2 w + 1 of the block's: lanes 0 and 1 keep their residual.
template <bool kE4m3>
class DecodeWalk {
 public:
  __device__ DecodeWalk(DecodeLayersShared& shared, const DecodeLayersParams& params, const DecodeRow& row)
      : shared_(shared), params_(params), row_(row), packets_(params.work->packets) {
    const DecodeThread thread = DecodeThread::here();
    if (owns(thread)) own_ = ptx::bf16_to_float(params.residual[feature(thread)]);
    tag_ = *reinterpret_cast<const volatile std::uint32_t*>(&params.work->steps) *
           static_cast<std::uint32_t>(params.layers);
  }

  __device__ void layer(int index) {
    const DecodeLayerParams& layer = params_.layer[index];
    ++tag_;
    qkv(layer, index == 0);
    attention(layer);
    output(layer);
    route(layer);
    gate_up(layer, index);
    down(layer, index, index + 1 == params_.layers);
  }

 private:
  using S = DecodeLayersKernel;
  using R = DecodeRingShape;
  static_assert(R::kShareMost <= 2 * S::kWarps && R::kQkvMost <= 4 * S::kWarps);

  __device__ bool owns(const DecodeThread& thread) const {
    return thread.lane < 2 && 2 * thread.warp < row_.features.count;
  }
  __device__ int feature(const DecodeThread& thread) const {
    return row_.features.begin + 2 * thread.warp + thread.lane % 2;
  }
  __device__ static float bias_of(const std::uint16_t* bias, long at) { return ptx::bf16_to_float(__ldg(bias + at)); }

  // Adds to the residual of the features of this warp, and tells the others.
  __device__ void add_to_residual(const DecodeThread& thread, float sum, int packets) {
    own_ += sum;
    const float neighbour = __shfl_xor_sync(0xffffffffu, own_, 1);
    if (owns(thread) && thread.lane == 0) {
      publish(packets_ + packets + feature(thread) / 2, ptx::pack_bf16(own_, neighbour), tag_);
    }
  }

  // Pair p of rows is of warp p % kWarps.
  __device__ void qkv(const DecodeLayerParams& layer, bool first) {
    const DecodeThread thread = DecodeThread::here();
    const DecodeFours weight = DecodeFours::read(thread, layer.attention_norm);
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * (thread.warp + i * S::kWarps) + thread.lane % 2;
      bias[i] = row < row_.qkv.count ? bias_of(layer.qkv_bias, row_.qkv.begin + row) : 0.f;
    }
    const DecodeFours residual = first ? DecodeFours::read(thread, params_.residual)
                                       : await_residual(thread, packets_ + DecodePackets::kHidden, tag_ - 1);
    norm_row(thread, shared_, residual, weight, params_.epsilon);
    constexpr int kUnits = S::kHidden / 8;
    for (int slot = 0; slot * R::kQkvRows < row_.qkv.count; ++slot) {
      const DecodeSlot at = cursor_.next(R::qkv_in_b(slot));
      const int row = slot * R::kQkvRows;
      const bool halved = row + 2 < row_.qkv.count;  // two warps have a pair each
      const int half = (2 * S::kWarps + thread.warp - row / 2 % S::kWarps) % S::kWarps;
      if (half > (halved ? 1 : 0)) continue;
      const auto* rows = reinterpret_cast<const uint4*>(await_slot(shared_.stages, at) + half * 2 * R::kQkvBytes);
      const float sum = dense_pair<kUnits>(
          thread,
          [&](int step) {
            return DecodePair{rows + step * 32, rows + kUnits + step * 32};
          },
          shared_.x);
      free_slot(shared_.stages, at, !halved ? S::kWarps : half == 0 ? S::kWarps / 2 : S::kWarps - S::kWarps / 2);
      const int mine = row + 2 * half + thread.lane;
      if (thread.lane < 2) {
        publish(packets_ + DecodePackets::kQkv + row_.qkv.begin + mine,
                sum + (mine / 2 < S::kWarps ? bias[0] : bias[1]), tag_);
      }
    }
  }

  __device__ void attention(const DecodeLayerParams& layer) {
    const DecodeThread thread = DecodeThread::here();
    const DecodeAttentionTask task(layer.window, row_.context);
    if (!task.takes_part()) return;
    DecodeHeads heads;
    attend<kE4m3>(thread, params_, layer, task, shared_.turns, tag_, shared_.qkv, heads);
    if (thread.warp < S::kAttentionWarps) write_part(thread, heads, shared_.parts[thread.warp]);
    consumers_sync();
    sum_parts(thread, params_, layer, task, shared_.parts, tag_);
    if (!task.whole && thread.warp == S::kWarps - 1) sum_pieces(thread, params_, layer, task, tag_);
  }

  __device__ void output(const DecodeLayerParams& layer) {
    const DecodeThread thread = DecodeThread::here();
    const float bias = owns(thread) ? bias_of(layer.output_bias, feature(thread)) : 0.f;
    const DecodePacket* attended = packets_ + DecodePackets::kAttended;
    consumers_sync();
    gather_pairs<S::kAttended / 4>(
        thread.index, tag_, [&](int pair) { return attended + 2 * pair; },
        [&](int, int pair, std::uint32_t first, std::uint32_t second) {
          reinterpret_cast<uint2*>(shared_.attended)[pair] = {first, second};
        });
    consumers_sync();
    const float sum = output_pair(thread);
    add_to_residual(thread, sum + bias, DecodePackets::kMiddle);
  }

  // Both rows of a warp lie in one, two or three slots, 32 units a step. Every warp frees every slot.
  __device__ float output_pair(const DecodeThread& thread) {
    const auto slot_of = [&](int slot) { return cursor_.ahead(R::output_in_b(slot), slot / 2); };
    const int steps = row_.features.count * R::kOutputSteps, first = 2 * thread.warp * R::kOutputSteps;
    float sum = 0;
    if (first < steps) {
      for (int slot = first / R::kOutputSlotSteps; slot * R::kOutputSlotSteps < first + 2 * R::kOutputSteps; ++slot) {
        await_slot(shared_.stages, slot_of(slot));
      }
      const auto at = [&](int step) {
        const int stage = slot_of(step / R::kOutputSlotSteps).stage;
        return reinterpret_cast<const uint4*>(shared_.stages.bytes[stage] + step % R::kOutputSlotSteps * R::kStepBytes);
      };
      sum = dense_pair<S::kAttended / 8>(
          thread,
          [&](int step) {
            return DecodePair{at(first + step), at(first + R::kOutputSteps + step)};
          },
          shared_.attended);
    }
    const int slots = (steps + R::kOutputSlotSteps - 1) / R::kOutputSlotSteps;
    for (int slot = 0; slot < slots; ++slot) free_slot(shared_.stages, slot_of(slot));
    cursor_.skip(false, (slots + 1) / 2);
    cursor_.skip(true, slots / 2);
    return sum;
  }

  __device__ void route(const DecodeLayerParams& layer) {
    const DecodeThread thread = DecodeThread::here();
    const DecodeFours weight = DecodeFours::read(thread, layer.mlp_norm);
    const int expert = static_cast<int>(blockIdx.x);
    const bool has = expert < params_.experts;
    const float bias = has ? bias_of(layer.router_bias, expert) : 0.f;
    const DecodeFours residual = await_residual(thread, packets_ + DecodePackets::kMiddle, tag_);
    norm_row(thread, shared_, residual, weight, params_.epsilon);
    if (has) {
      const DecodeSlot at = cursor_.next(false);
      if (thread.warp == S::kWarps - 1) {
        const auto* row = reinterpret_cast<const uint4*>(await_slot(shared_.stages, at));
        const float logit =  // odd lanes get it once more
            bias + dense_pair<S::kHidden / 8>(
                       thread,
                       [&](int step) {
                         return DecodePair{row + step * 32, row + step * 32};
                       },
                       shared_.x);
        free_slot(shared_.stages, at, S::kWarps);
        const int copy = thread.lane / 2;
        if (thread.lane % 2 == 0 && copy < DecodePackets::kLogitCopies) {
          publish(packets_ + DecodePackets::kLogits + copy * S::kExpertsMax + expert, logit, tag_);
        }
      }
    }
    ptx::fence_async_shared();  // where attention's numbers were, the copy engine writes scales
    consumers_sync();
    if (thread.warp == 0) {
      choose(thread);
    } else {
      ptx::barrier_arrive_other_warp(&shared_.routed);
    }
    consumers_sync();
  }

  // The first warp; then the loading warp may ask for the experts.
  __device__ void choose(const DecodeThread& thread) {
    constexpr int kOwn = S::kExpertsMax / 32;
    const int lane = thread.lane;
    const DecodePacket* logits =
        packets_ + DecodePackets::kLogits + static_cast<int>(blockIdx.x) % DecodePackets::kLogitCopies * S::kExpertsMax;
    std::uint32_t bits[kOwn];
    await_single<kOwn>([&](int i) { return logits + min(i * 32 + lane, params_.experts - 1); }, tag_, bits);
    unsigned keys[ptx::kHeldLogits];
#pragma unroll
    for (int i = 0; i < ptx::kHeldLogits; ++i) {
      keys[i] = i < kOwn && i * 32 + lane < params_.experts ? ptx::key_of(__uint_as_float(bits[i % kOwn])) : 0;
    }
    ptx::choose_row(keys, S::kTop, shared_.experts, shared_.weights);
    __syncwarp();
    ptx::barrier_arrive_warp(&shared_.routed);
  }

  __device__ void gate_up(const DecodeLayerParams& layer, int index) {
    const DecodeThread thread = DecodeThread::here();
    const int mine = thread.index, count = row_.features.count;
    const int e = min(mine / count, S::kTop - 1), j = mine % count;  // activation j of expert e
    std::uint32_t bias = 0;
    if (mine < S::kTop * count) {
      const long at = static_cast<long>(shared_.experts[e]) * 2 * S::kIntermediate + 2 * (row_.features.begin + j);
      bias = __ldg(reinterpret_cast<const std::uint32_t*>(layer.gate_up_bias + at));
    }
    DecodeColumns x{};
    x.read(thread, shared_.x, 0);
    ptx::barrier_wait(&shared_.gate_up_full, index & 1);
    expert_rows(thread, shared_.gate_up_scales, 2 * count, x);
    consumers_sync();
    float activation = 0;
    if (mine < S::kTop * count) {
      const int at = 2 * j / R::kExpertRows * (S::kTop * R::kExpertRows) + e * R::kExpertRows + 2 * j % R::kExpertRows;
      activation = ptx::swiglu(fmaf(shared_.sums.total(at), kTwoTo62, ptx::bf16_low(bias)),
                               fmaf(shared_.sums.total(at + 1), kTwoTo62, ptx::bf16_high(bias)), params_.swiglu_limit);
    }
    const float neighbour = __shfl_down_sync(0xffffffffu, activation, 1);
    if (mine < S::kTop * count && mine % 2 == 0) {
      publish(packets_ + DecodePackets::kActivations + (e * S::kIntermediate + row_.features.begin + j) / 2,
              ptx::pack_bf16(activation, neighbour), tag_);
    }
  }

  __device__ void down(const DecodeLayerParams& layer, int index, bool last) {
    const DecodeThread thread = DecodeThread::here();
    const int mine = thread.index, e = mine % S::kTop, j = mine / S::kTop;  // feature j of expert e
    float bias = 0;
    if (j < row_.features.count) {
      bias = bias_of(layer.down_bias, static_cast<long>(shared_.experts[e]) * S::kHidden + row_.features.begin + j);
    }
    gather_activations(thread);
    DecodeColumns x{};
    x.read(thread, shared_.activations[0], S::kIntermediate / 8);
    ptx::barrier_wait(&shared_.down_full, index & 1);
    expert_rows(thread, shared_.down_scales, row_.features.count, x);
    consumers_sync();
    float y = 0;
    if (j < row_.features.count) {
      const int at = j / R::kExpertRows * (S::kTop * R::kExpertRows) + e * R::kExpertRows + j % R::kExpertRows;
      y = shared_.weights[e] * fmaf(shared_.sums.total(at), kTwoTo62, bias);
    }
    y += __shfl_xor_sync(0xffffffffu, y, 1);
    y += __shfl_xor_sync(0xffffffffu, y, 2);
    if (e == 0 && j < row_.features.count) shared_.y[j] = y;
    consumers_sync();
    y = owns(thread) ? shared_.y[2 * thread.warp + thread.lane] : 0.f;
    if (!last) return add_to_residual(thread, y, DecodePackets::kHidden);
    if (owns(thread)) params_.residual[feature(thread)] = static_cast<std::uint16_t>(ptx::pack_bf16(own_ + y, 0.f));
  }

  __device__ void gather_activations(const DecodeThread& thread) {
    const DecodePacket* activations = packets_ + DecodePackets::kActivations;
    consumers_sync();
    gather_pairs<S::kTop * S::kIntermediate / 4>(
        thread.index, tag_, [&](int pair) { return activations + 2 * pair; },
        [&](int, int pair, std::uint32_t first, std::uint32_t second) {
          reinterpret_cast<uint2*>(shared_.activations)[pair] = {first, second};
        });
    consumers_sync();
  }

  template <int kScaleRows>
  __device__ void expert_rows(const DecodeThread& thread, const DecodeScales<kScaleRows>& scales, int rows,
                              const DecodeColumns& x) {
    for (int row = 0; row < rows; row += R::kExpertRows) {
      const DecodeSlot at = cursor_.next(true);
      expert_slot<kScaleRows>(thread, await_slot(shared_.stages, at), scales, row, x, shared_.sums);
      free_slot(shared_.stages, at);
    }
  }

  static constexpr float kTwoTo62 = 4611686018427387904.f;

  DecodeLayersShared& shared_;
  const DecodeLayersParams& params_;
  const DecodeRow& row_;
  DecodePacket* packets_;
  DecodeCursor cursor_;
  std::uint32_t tag_;
  float own_ = 0;
};

// --- kernel
// --------------------------------------------------------------------------------------------------------------

__device__ inline void decode_setup(DecodeLayersShared& shared, const DecodeLayersParams& params, int position) {
  using R = DecodeRingShape;
  if (threadIdx.x < 32) {
    const ptx::Turn turn = ptx::turn_of(__fmul_rn(static_cast<float>(position), params.frequencies[threadIdx.x]));
    shared.turns.cosine[threadIdx.x] = params.concentration * turn.cosine;
    shared.turns.sine[threadIdx.x] = params.concentration * turn.sine;
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2 * R::kStages; ++stage) {
      ptx::barrier_init(&shared.stages.full[stage], 1);
      ptx::barrier_init(&shared.stages.empty[stage], DecodeLayersKernel::kWarps * ptx::kWarpArrivals);
    }
    ptx::barrier_init(&shared.routed, ptx::arrivals_for_warps(DecodeLayersKernel::kWarps));
    ptx::barrier_init(&shared.gate_up_full, 1);
    ptx::barrier_init(&shared.down_full, 1);
    ptx::barrier_init_fence();
  }
  __syncthreads();
}

template <bool kE4m3>
__global__ void __launch_bounds__(DecodeLayersKernel::kThreads, 1)
    decode_layers_kernel(const __grid_constant__ DecodeLayersParams params) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<DecodeLayersShared*>(memory);
  const DecodeRow row(params);
  decode_setup(shared, params, row.position);
  if (threadIdx.x / 32 == DecodeLayersKernel::kWarps) {
    decode_load(shared, params, row);
    return;
  }
  DecodeWalk<kE4m3> walk(shared, params, row);
  for (int index = 0; index < params.layers; ++index) walk.layer(index);
  // By now every block has read the count: this one has had numbers of the last layer from all of them.
  if (blockIdx.x == 0 && threadIdx.x == 0) ++params.work->steps;
}

template <bool kE4m3>
void launch_decode_layers(const DecodeLayersParams& params, int multiprocessors, cudaStream_t stream) {
  rose::cuda::launch(&decode_layers_kernel<kE4m3>, "decode_layers",
                     {.grid = dim3(static_cast<unsigned>(multiprocessors)),
                      .block = dim3(DecodeLayersKernel::kThreads),
                      .shared_bytes = sizeof(DecodeLayersShared),
                      .all_at_once = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
