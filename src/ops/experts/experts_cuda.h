// The CUDA side of experts.h; arguments have been checked.
//
// Scales of expert weights lie on the GPU once, in the order in which the products read them (ExpertScales):
//   MXFP4   scales  u8 (e8m0) [experts, ceil(in / 128), out rounded up to 128, 4]: the four groups of a 128-wide step
//                   lie together. Groups of zeros hold their tile's base.
//   FP8     scales  empty
//   both    bases   f32 [experts, ceil(out / 128), ceil(in / 128) rounded up to 4]: a power of two for every 128 x 128
//                   tile. MXFP4: 2^(largest exponent - 6), so that e2m1 times a group's scale over the base is e4m3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"
#include "ops/experts/experts.h"

namespace rose::ops::cuda {

std::int64_t expert_scale_bytes(WeightFormat format, std::int64_t experts, std::int64_t out, std::int64_t in);
std::int64_t expert_base_bytes(std::int64_t experts, std::int64_t out, std::int64_t in);

// From scales as stored (weights/format.h) on the device, beside the payload, into memory of the sizes above;
// `stored`'s scales may be freed once the stream has passed this. Adds the number of MXFP4 tiles whose exponents span
// more than e4m3 holds exactly (14) to *inexact_tiles (device memory).
ExpertScales prepare_scales(const Stream& stream, const Weight& stored, void* scales, void* bases, int* inexact_tiles);

struct ExpertWorkShape {
  int rows_max = 0;
  int experts_per_token = 0;  // at most 8
  int experts_held = 0;
  int hidden = 0;
  int intermediate = 0;
};
// Memory for every path of `experts` with up to rows_max rows.
std::size_t expert_work_bytes(const ExpertWorkShape& shape);

struct ExpertWork {
  ExpertWorkShape shape;
  void* memory = nullptr;  // device, expert_work_bytes(shape), aligned to 1024 bytes
};

struct ExpertCall {
  const Tensor& x;  // [rows, hidden] bf16
  const Routing& routing;
  const ExpertWeights& weights;  // on a GPU: payloads, biases and prepared scales
  float swiglu_limit;
  const ExpertWork& work;
  const Tensor& y;                // [rows, hidden] bf16
  bool bf16_activations = false;  // never round activations to e4m3: exact, and slow for many rows
};

// Few rows: weights exactly as stored against bf16 activations. Many rows: activations in e4m3, one scale for 128
// neighbours. The same call gives the same bits in every launch.
void experts(const Stream& stream, const ExpertCall& call);

// The path of many rows for any number of rows, with tiles for few or for many rows of an expert: what tests and
// benchmarks ask for.
enum class ExpertTiles { kNarrow, kWide };
void experts_rounded(const Stream& stream, const ExpertCall& call, ExpertTiles tiles);

}  // namespace rose::ops::cuda
