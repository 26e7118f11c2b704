// The CUDA side of experts.h; arguments have been checked.
//
// Scales of expert weights lie on the GPU once, in the order in which the products read them (ExpertScales):
//   MXFP4   scales  u8 (e8m0) [experts, ceil(in / 256), out rounded up to 128, 8]: the eight groups of a 256-wide step
//                   lie together. Groups of zeros hold their tile's base.
//           bases   f32 [experts, ceil(out / 128), ceil(in / 256)]: for every tile of 128 x 256 the power of two
//                   2^(largest exponent - 6), so that e2m1 times a group's scale over the base is e4m3
//   FP8     scales  empty
//           bases   f32 [experts, ceil(out / 128), ceil(in / 128)]: the stored scales
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
  void* memory = nullptr;  // device, expert_work_bytes(shape), aligned to 64 bytes
};

struct ExpertCall {
  const Tensor& x;  // [rows, hidden] bf16
  const Routing& routing;
  const ExpertWeights& weights;  // on a GPU: payloads, biases and prepared scales
  float swiglu_limit;
  const ExpertWork& work;
  const Tensor& y;                // [rows, hidden] bf16
  bool bf16_activations = false;  // never round activations to e4m3: exact, slow for many rows; MXFP4 only
};

// Few rows: weights exactly as stored against bf16 activations. Many rows: activations in e4m3, one scale for 256
// neighbours (e4m3 spans 2^15 at full precision: narrower groups gain nothing, wider ones let one outlier reach
// further). The same call gives the same bits in every launch.
void experts(const Stream& stream, const ExpertCall& call);

// The path of many rows for any number of rows, with tiles for few or for many rows of an expert: what tests and
// benchmarks ask for.
enum class ExpertTiles { kNarrow, kWide };
void experts_rounded(const Stream& stream, const ExpertCall& call, ExpertTiles tiles);

}  // namespace rose::ops::cuda
