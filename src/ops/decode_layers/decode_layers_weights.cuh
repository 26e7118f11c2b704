// The stream of weights: one warp copies what the block will need into two rings of shared memory, in the order of
// need and as far ahead as they reach, so that memory is busy while the blocks wait for each other's numbers.
//
// Ring A holds dense rows, ring B expert rows; dense rows use B, too, where no expert rows are due. Which experts come
// is known only after routing. A takes the next layer's first rows of qkv as soon as gate_up's have been asked for.
#pragma once

#include "ops/decode_layers/decode_layers_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/tma.cuh"

namespace rose::ops::cuda {

// Which thread this is, read anew: what follows from it is then not kept in registers from layer to layer.
struct DecodeThread {
  int index, lane, warp;
  __device__ static DecodeThread here() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return {index, index % 32, index / 32};
  }
};

// A block's share of `pairs` pairs of features.
struct DecodeShare {
  int begin, count;  // features
  __device__ DecodeShare(int pairs, unsigned block)
      : begin(2 * (pairs * static_cast<int>(block) / static_cast<int>(gridDim.x))),
        count(2 * (pairs * static_cast<int>(block + 1) / static_cast<int>(gridDim.x)) - begin) {}
};

struct DecodeRingShape {
  using S = DecodeLayersKernel;
  static constexpr int kStages = 4;  // of each ring
  static constexpr int kStageBytes = 16 * S::kHidden / 2;
  static constexpr int kQkvRows = 4;  // of a slot
  static constexpr int kQkvBytes = S::kHidden * 2, kOutputBytes = S::kAttended * 2, kRouterBytes = S::kHidden * 2;
  // Rows of the output matrix fill slots without regard to where they end: all slots of a block then fit in both rings
  // before attention has ended.
  static constexpr int kStepBytes = 512, kOutputSlotSteps = kStageBytes / kStepBytes;
  // A slot of expert rows: four rows of each of the four experts.
  static constexpr int kExpertRows = 4, kExpertBytes = S::kHidden / 2;
  static_assert(kQkvRows * kQkvBytes <= kStageBytes && kOutputBytes % kStepBytes == 0);
  static_assert(S::kTop * kExpertRows * kExpertBytes == kStageBytes && S::kIntermediate == S::kHidden);

  static constexpr int kShareMost = 2 * ((S::kHidden / 2 + S::kBlocksLeast - 1) / S::kBlocksLeast);
  static constexpr int kQkvMost = 2 * ((S::kQkv / 2 + S::kBlocksLeast - 1) / S::kBlocksLeast);
  static constexpr int kOutputSteps = kOutputBytes / kStepBytes;  // of a row
  static_assert(kShareMost * kOutputSteps <= 2 * kStages * kOutputSlotSteps);
  static constexpr int kScaleTiles = (S::kHidden + S::kScaleTile - 1) / S::kScaleTile;
  static constexpr int kScaleRow = S::kScaleTile / S::kGroup;  // bytes of a row in a tile

  // Which ring slot i is in. The first kEarly slots of qkv are asked for during the layer before.
  static constexpr int kEarly = kStages;
  __device__ static bool qkv_in_b(int slot) { return slot >= kEarly && slot < kEarly + kStages; }
  __device__ static bool output_in_b(int slot) { return slot % 2 == 1; }
};

// Scales of all expert rows of a block for one of the two products: [expert][tile of inputs][row][8].
template <int kRows>
using DecodeScales =
    std::uint8_t[DecodeLayersKernel::kTop][DecodeRingShape::kScaleTiles][kRows][DecodeRingShape::kScaleRow];

struct DecodeStages {
  using R = DecodeRingShape;
  std::uint8_t bytes[2 * R::kStages][R::kStageBytes];  // ring A, ring B
  std::uint64_t full[2 * R::kStages], empty[2 * R::kStages];
};

// Where a warp is in both rings. The loading warp and the others walk the same sequence.
struct DecodeSlot {
  int stage, phase;
};
class DecodeCursor {
 public:
  __device__ DecodeSlot next(bool in_b) {
    const DecodeSlot slot = ahead(in_b, 0);
    skip(in_b, 1);
    return slot;
  }
  // The slot that the call of next(in_b) after `slots` others will give.
  __device__ DecodeSlot ahead(bool in_b, int slots) const {
    constexpr int kStages = DecodeRingShape::kStages;
    const int n = (in_b ? b_ : a_) + slots;
    return {n % kStages + (in_b ? kStages : 0), n / kStages & 1};
  }
  __device__ void skip(bool in_b, int slots) {
    a_ += in_b ? 0 : slots;
    b_ += in_b ? slots : 0;
  }

 private:
  int a_ = 0, b_ = 0;
};

// --- loading warp
// --------------------------------------------------------------------------------------------------------

class DecodeLoader {
 public:
  __device__ explicit DecodeLoader(DecodeStages& stages) : stages_(stages) {}

  // Waits until the next slot is free and announces `bytes`; then any lane may copy to it.
  __device__ DecodeSlot open(bool in_b, int bytes) {
    const DecodeSlot slot = cursor_.next(in_b);
    ptx::barrier_wait(&stages_.empty[slot.stage], slot.phase ^ 1);
    limit(slot);
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive_expect(&stages_.full[slot.stage], bytes);
    __syncwarp();
    return slot;
  }
  __device__ void copy(const DecodeSlot& slot, int offset, const void* from, int bytes) {
    ptx::bulk_load(stages_.bytes[slot.stage] + offset, from, bytes, &stages_.full[slot.stage], ptx::kEvictFirst);
  }
  __device__ void dense(bool in_b, const void* from, int bytes) {
    const DecodeSlot slot = open(in_b, bytes);
    if (threadIdx.x % 32 == 0) copy(slot, 0, from, bytes);
  }

 private:
  // More in flight than memory needs to stay busy only makes others wait: packets stand in the same queues.
  __device__ void limit(const DecodeSlot& slot) {
    if (opened_ >= kInFlight) ptx::barrier_wait(&stages_.full[slots_[0].stage], slots_[0].phase);
#pragma unroll
    for (int i = 0; i + 1 < kInFlight; ++i) slots_[i] = slots_[i + 1];
    slots_[kInFlight - 1] = slot;
    ++opened_;
  }

  static constexpr int kInFlight = 2;
  static_assert(kInFlight < DecodeRingShape::kStages, "a barrier that is waited for must still be in its phase");
  DecodeStages& stages_;
  DecodeCursor cursor_;
  DecodeSlot slots_[kInFlight] = {};
  int opened_ = 0;
};

__device__ inline void load_qkv(DecodeLoader& loader, const std::uint16_t* weight, const DecodeShare& share,
                                int slot_begin, int slot_end) {
  using R = DecodeRingShape;
  for (int slot = slot_begin; slot < slot_end && slot * R::kQkvRows < share.count; ++slot) {
    const int row = slot * R::kQkvRows, rows = min(R::kQkvRows, share.count - row);
    loader.dense(R::qkv_in_b(slot), weight + static_cast<long>(share.begin + row) * DecodeLayersKernel::kHidden,
                 rows * R::kQkvBytes);
  }
}

__device__ inline void load_output(DecodeLoader& loader, const std::uint16_t* weight, const DecodeShare& share) {
  using R = DecodeRingShape;
  const auto* rows =
      reinterpret_cast<const std::uint8_t*>(weight + static_cast<long>(share.begin) * DecodeLayersKernel::kAttended);
  const int steps = share.count * R::kOutputSteps;
  for (int slot = 0; slot * R::kOutputSlotSteps < steps; ++slot) {
    const int step = slot * R::kOutputSlotSteps;
    loader.dense(R::output_in_b(slot), rows + static_cast<long>(step) * R::kStepBytes,
                 min(R::kOutputSlotSteps, steps - step) * R::kStepBytes);
  }
}

// Rows [first, first + rows) of each of the four experts, `out` rows an expert.
__device__ inline void load_expert_rows(DecodeLoader& loader, const std::uint8_t* payload,
                                        const int (&experts)[DecodeLayersKernel::kTop], int out, int first, int rows) {
  using R = DecodeRingShape;
  for (int row = 0; row < rows; row += R::kExpertRows) {
    const int bytes = min(R::kExpertRows, rows - row) * R::kExpertBytes;
    const DecodeSlot slot = loader.open(true, DecodeLayersKernel::kTop * bytes);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int e = 0; e < DecodeLayersKernel::kTop; ++e) {
      if (lane != e) continue;
      const long at = static_cast<long>(experts[e]) * out + first + row;
      loader.copy(slot, e * R::kExpertRows * R::kExpertBytes, payload + at * R::kExpertBytes, bytes);
    }
  }
}

template <int kRows>
__device__ inline void load_scales(DecodeScales<kRows>& to, std::uint64_t* full, const std::uint8_t* scales,
                                   const int (&experts)[DecodeLayersKernel::kTop], int out, int first, int rows) {
  using R = DecodeRingShape;
  constexpr int kPieces = DecodeLayersKernel::kTop * R::kScaleTiles;
  const int lane = threadIdx.x % 32, out_padded = (out + 127) / 128 * 128;
  if (lane == 0) ptx::barrier_arrive_expect(full, kPieces * rows * R::kScaleRow);
  __syncwarp();
#pragma unroll
  for (int e = 0; e < DecodeLayersKernel::kTop; ++e) {
    if (lane >= R::kScaleTiles) continue;
    const long row = (static_cast<long>(experts[e]) * R::kScaleTiles + lane) * out_padded + first;
    ptx::bulk_load(to[e][lane][0], scales + row * R::kScaleRow, rows * R::kScaleRow, full, ptx::kEvictFirst);
  }
}

// --- the others
// ----------------------------------------------------------------------------------------------------------

__device__ inline const std::uint8_t* await_slot(DecodeStages& stages, const DecodeSlot& slot) {
  ptx::barrier_wait(&stages.full[slot.stage], slot.phase);
  return stages.bytes[slot.stage];
}
// By a warp that has read what `shares` of the kWarps warps would have.
__device__ inline void free_slot(DecodeStages& stages, const DecodeSlot& slot, int shares = 1) {
  __syncwarp();
  ptx::barrier_arrive_warp(&stages.empty[slot.stage], shares);
}

}  // namespace rose::ops::cuda
