// What the launcher hands to the kernel that takes one row through all layers, and how that kernel is cut.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

// gpt-oss, both sizes: they differ in layers and experts alone.
struct DecodeLayersKernel {
  static constexpr int kHidden = 2880, kIntermediate = 2880;
  static constexpr int kHeads = 64, kKvHeads = 8, kHeadDim = 64, kGroupHeads = kHeads / kKvHeads;
  static constexpr int kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
  static constexpr int kAttended = kHeads * kHeadDim;
  static constexpr int kTop = 4;
  static constexpr int kExpertsMax = 128;
  static constexpr int kLayersMax = 64;
  static constexpr int kGroup = 32;       // MXFP4: inputs of one scale
  static constexpr int kScaleTile = 256;  // inputs whose scales lie together (experts_prepare.cu)

  static constexpr int kBlocksLeast = 132, kBlocksMost = 160;
  static constexpr int kSplits = 16;  // of a long context, for each KV head
  static_assert(kKvHeads * kSplits <= kBlocksLeast && kExpertsMax <= kBlocksLeast);

  static constexpr int kWarps = 15;
  static constexpr int kAttentionWarps = 12;  // what shared memory has room for
  static constexpr int kConsumers = kWarps * 32;
  static constexpr int kThreads = kConsumers + 32;  // and the loading warp
};

// One number of 32 bits that a block tells the others, and when: blocks read it until the tag is the one they wait for.
using DecodePacket = std::uint64_t;

// Where packets of each kind begin, in packets. Every kind is overwritten once a layer.
struct DecodePackets {
  using S = DecodeLayersKernel;
  static constexpr int kPieceSize = S::kGroupHeads * (S::kHeadDim + 2);  // out, maximum and sum of each head
  static constexpr int kLogitCopies = 8;                        // so that not all blocks ask for the same few lines
  static constexpr int kQkv = 0;                                // f32 [kQkv]
  static constexpr int kAttended = kQkv + S::kQkv;              // bf16 pairs [kAttended / 2]
  static constexpr int kMiddle = kAttended + S::kAttended / 2;  // bf16 pairs [kHidden / 2]
  static constexpr int kLogits = kMiddle + S::kHidden / 2;      // f32 [kLogitCopies, experts]
  static constexpr int kActivations = kLogits + kLogitCopies * S::kExpertsMax;   // bf16 pairs [kTop, kIntermediate / 2]
  static constexpr int kHidden = kActivations + S::kTop * S::kIntermediate / 2;  // bf16 pairs [kHidden / 2]
  static constexpr int kPieces = kHidden + S::kHidden / 2;                       // f32 [kKvHeads, kSplits, kPieceSize]
  static constexpr int kCount = kPieces + S::kKvHeads * S::kSplits * kPieceSize;
};

struct DecodeLayersWork {
  std::uint32_t steps;                                      // that have ended; zero at first
  alignas(16) DecodePacket packets[DecodePackets::kCount];  // zero at first
};

struct DecodeLayerParams {
  const std::uint16_t *attention_norm, *qkv, *qkv_bias, *sinks, *output, *output_bias;
  const std::uint16_t *mlp_norm, *router, *router_bias;
  const std::uint8_t *gate_up, *gate_up_scales;  // payload [experts, 2 * intermediate, hidden / 2]; scales as prepared
  const std::uint16_t* gate_up_bias;
  const std::uint8_t *down, *down_scales;
  const std::uint16_t* down_bias;
  void *keys, *values;  // [pages, kv_heads, page_size, 64]
  int window;           // 0: none
  int kv_set;           // 0 or 1
};

// Page table and slot of the row, for the layers of one KV set.
struct DecodeKvSet {
  const int* slot;        // [1]
  const int* page_table;  // [1, pages]
  const int* first_page;  // [1]
};

struct DecodeLayersParams {
  DecodeLayersWork* work;
  std::uint16_t* residual;    // [hidden] bf16, in and out
  const float* frequencies;   // [32]
  const int* position;        // [1], for RoPE
  const int* context_length;  // [1], with this row
  DecodeKvSet sets[2];
  float concentration;
  float epsilon;
  float scale_log2;  // of scores, times log2(e)
  float swiglu_limit;
  int layers, experts;
  int page_shift;
  DecodeLayerParams layer[DecodeLayersKernel::kLayersMax];
};

// Whether all blocks, one a multiprocessor, can run at once on the current device.
bool decode_layers_fit();

template <bool kE4m3>
void launch_decode_layers(const DecodeLayersParams& params, int multiprocessors, cudaStream_t stream);

}  // namespace rose::ops::cuda
