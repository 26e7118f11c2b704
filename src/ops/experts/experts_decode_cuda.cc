#include "ops/experts/experts_decode_cuda.h"

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/experts/experts_decode_params.cuh"

namespace rose::ops::cuda {
namespace {

static_assert(kExpertDecodeRowsMax == ExpertDecodeLimits::kRows);

bool takes(const Weight& weight) {
  return weight.format == WeightFormat::kMxfp4 && weight.experts > 0 && weight.in % 32 == 0 && weight.out % 32 == 0 &&
         weight.in <= ExpertDecodeLimits::kGroups * 32;
}

std::size_t activation_bytes(const ExpertDecodeShape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.rows_max) *
                            static_cast<std::size_t>(shape.experts_per_token) *
                            static_cast<std::size_t>(shape.intermediate) * 2;
  return (bytes + 255) / 256 * 256;
}

CUtensorMap scales_map(const Tensor& scales) {
  const auto experts = static_cast<std::uint64_t>(scales.size(0)), blocks = static_cast<std::uint64_t>(scales.size(1)),
             row = static_cast<std::uint64_t>(scales.size(2)) * 8;
  return rose::cuda::make_tensor_map<3>(
      scales.raw(), rose::cuda::MapType::kByte,
      {{row, blocks, experts},
       {row, row * blocks},
       {ExpertDecodeLimits::kTileFeatures * 8, static_cast<std::uint32_t>(blocks), 1}},
      rose::cuda::Swizzle::kNone);
}

ExpertDecode product(const Weight& weight, const ExpertScales& scales, const ExpertDecodeCall& call, const void* x,
                     void* out) {
  ExpertDecode params{};
  params.payload = weight.payload.as<std::uint8_t>();
  params.scales = scales_map(scales.scales);
  params.bias = static_cast<const std::uint16_t*>(weight.bias.raw());
  params.experts = call.routing.experts.as<std::int32_t>();
  params.routing = call.routing.weights.as<float>();
  params.x = static_cast<const std::uint16_t*>(x);
  params.out = out;
  params.rows = static_cast<int>(call.x.size(0));
  params.k = static_cast<int>(call.routing.experts.size(1));
  params.first_expert = static_cast<int>(call.weights.first_expert);
  params.experts_held = static_cast<int>(weight.experts);
  params.in = static_cast<int>(weight.in);
  params.out_features = static_cast<int>(weight.out);
  params.swiglu_limit = call.swiglu_limit;
  return params;
}

}  // namespace

bool experts_decode_takes(const ExpertWeights& weights) { return takes(weights.gate_up) && takes(weights.down); }

std::size_t experts_decode_work_bytes(const ExpertDecodeShape& shape) {
  return activation_bytes(shape) + static_cast<std::size_t>(shape.rows_max) *
                                       static_cast<std::size_t>(shape.experts_per_token) *
                                       static_cast<std::size_t>(shape.hidden) * 4;
}

void experts_decode(const Stream& stream, const ExpertDecodeCall& call) {
  const int rows = static_cast<int>(call.x.size(0)), k = static_cast<int>(call.routing.experts.size(1));
  const Weight &gate_up = call.weights.gate_up, &down = call.weights.down;
  CHECK(rows <= call.shape.rows_max && rows <= kExpertDecodeRowsMax && k == call.shape.experts_per_token &&
            k <= ExpertDecodeLimits::kTop,
        "experts_decode: {} rows, {} experts each, in work for {}, {}", rows, k, call.shape.rows_max,
        call.shape.experts_per_token);
  CHECK(experts_decode_takes(call.weights) && down.out == call.shape.hidden && down.in == call.shape.intermediate &&
            gate_up.in == down.out && gate_up.out == 2 * down.in && gate_up.experts == down.experts,
        "experts_decode: weights {} x {} and {} x {} in work for {}, {}", gate_up.out, gate_up.in, down.out, down.in,
        call.shape.hidden, call.shape.intermediate);
  if (rows == 0) return;
  const cudaStream_t native = rose::cuda::native_stream(stream);
  const int multiprocessors = rose::cuda::multiprocessors(stream);
  void* const activations = call.work;
  void* const weighted = static_cast<std::byte*>(call.work) + activation_bytes(call.shape);

  launch_expert_decode_gate_up(product(gate_up, call.weights.gate_up_scales, call, call.x.raw(), activations),
                               multiprocessors, native);
  launch_expert_decode_down(product(down, call.weights.down_scales, call, activations, weighted), multiprocessors,
                            native);
  ExpertDecodeCombine combine{};
  combine.weighted = static_cast<const float*>(weighted);
  combine.experts = call.routing.experts.as<std::int32_t>();
  combine.y = static_cast<std::uint16_t*>(call.y.raw());
  combine.rows = rows;
  combine.k = k;
  combine.hidden = static_cast<int>(down.out);
  combine.first_expert = static_cast<int>(call.weights.first_expert);
  combine.experts_held = static_cast<int>(gate_up.experts);
  launch_expert_decode_combine(combine, native);
}

}  // namespace rose::ops::cuda
