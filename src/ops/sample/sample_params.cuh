// What the host hands to the sampling kernel, and the shape both agree on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct SampleConfig {
  static constexpr int kBlocks = 8;  // a cluster: together they hold one row in shared memory
  static constexpr int kWarps = 32;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kSegments = kBlocks * kWarps;  // a warp owns one segment of neighbouring tokens
  static constexpr int kDigitBits = 8;
  static constexpr int kBuckets = 1 << kDigitBits;
  static constexpr int kTopMax = 20;
  static constexpr int kChunkMax = 29;  // tokens of a lane; odd numbers spread lanes over all shared-memory banks
  static constexpr int kVocabularyMax = kSegments * 32 * kChunkMax;
};

// SampleRow and LogitAdjustment of sample.h, which nvcc cannot read; sample_cuda.cc checks that they are laid out
// alike.
struct SampleOptions {
  float temperature, top_p, min_p;
  std::int32_t top_k;
  std::uint64_t seed, counter;
  std::int32_t slot, top_logprobs, mask_row, adjustments_begin, adjustments_end;
};
struct SampleAdjustment {
  std::int32_t token;
  float add, repetition;
};

struct SampleParams {
  const float* logits;  // [rows, vocabulary], rows `stride` apart
  std::int64_t stride;
  const SampleOptions* options;         // [rows]
  const SampleAdjustment* adjustments;  // or null
  const std::uint32_t* masks;           // [mask_rows, words], rows `mask_stride` apart; or null
  std::int64_t mask_stride;
  std::int32_t* tokens;       // [rows]
  float* logprobs;            // [rows] or null
  std::int32_t* top_tokens;   // [rows, kTopMax] or null, then top_logprobs too
  float* top_logprobs;        // [rows, kTopMax]
  std::int32_t* last_tokens;  // [slots] or null
  std::int64_t tokens_stride, logprobs_stride, top_tokens_stride, top_logprobs_stride, last_tokens_stride;
  int rows, vocabulary, mask_rows, slots;
  int chunk;     // tokens of a lane: odd, kSegments * 32 * chunk >= vocabulary
  bool aligned;  // every segment starts at a multiple of 16 bytes
};

void launch_sample(const SampleParams& params, cudaStream_t stream);
// Plain rows alone; launch_sample has the others.
void launch_sample_plain(const SampleParams& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
