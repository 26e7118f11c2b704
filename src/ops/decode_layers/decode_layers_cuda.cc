#include "ops/decode_layers/decode_layers_cuda.h"

#include <bit>

#include "device/backend.h"
#include "device/cuda/gpu.h"
#include "ops/check.h"
#include "ops/decode_layers/decode_layers_params.cuh"

namespace rose::ops::cuda {
namespace {

using Shape = DecodeLayersKernel;

const std::uint16_t* bf16(const Tensor& tensor) { return static_cast<const std::uint16_t*>(tensor.raw()); }
const std::uint8_t* bytes(const Tensor& tensor) { return static_cast<const std::uint8_t*>(tensor.raw()); }

DecodeLayerParams layer_params(const DecodeLayer& layer, const KvLayer& cache) {
  const ExpertWeights& experts = *layer.experts;
  return {.attention_norm = bf16(layer.attention_norm->payload),
          .qkv = bf16(layer.qkv->payload),
          .qkv_bias = bf16(layer.qkv->bias),
          .sinks = bf16(layer.sinks->payload),
          .output = bf16(layer.output->payload),
          .output_bias = bf16(layer.output->bias),
          .mlp_norm = bf16(layer.mlp_norm->payload),
          .router = bf16(layer.router->payload),
          .router_bias = bf16(layer.router->bias),
          .gate_up = bytes(experts.gate_up.payload),
          .gate_up_scales = bytes(experts.gate_up_scales.scales),
          .gate_up_bias = bf16(experts.gate_up.bias),
          .down = bytes(experts.down.payload),
          .down_scales = bytes(experts.down_scales.scales),
          .down_bias = bf16(experts.down.bias),
          .keys = cache.keys.raw(),
          .values = cache.values.raw(),
          .window = layer.window,
          .kv_set = layer.kv_set};
}

}  // namespace

bool has_decode_layers(const Stream& stream, const DecodeLayersShape& shape, int layers) {
  rose::cuda::make_current(stream.device().ordinal);  // decode_layers_fit asks of it
  return shape.hidden == Shape::kHidden && shape.intermediate == Shape::kIntermediate && shape.heads == Shape::kHeads &&
         shape.kv_heads == Shape::kKvHeads && shape.head_dim == Shape::kHeadDim &&
         shape.experts_per_token == Shape::kTop && shape.experts >= Shape::kTop &&
         shape.experts <= Shape::kExpertsMax && layers <= Shape::kLayersMax &&
         rose::cuda::multiprocessors(stream) >= Shape::kBlocksLeast &&
         rose::cuda::multiprocessors(stream) <= Shape::kBlocksMost && decode_layers_fit();
}

std::size_t decode_layers_work_bytes() { return sizeof(DecodeLayersWork); }

void decode_layers(const Stream& stream, const DecodeLayersCall& call) {
  DecodeLayersParams params{};
  params.work = static_cast<DecodeLayersWork*>(call.work);
  params.residual = static_cast<std::uint16_t*>(call.residual.raw());
  params.frequencies = call.rope.table.as<float>();
  params.position = call.row.position.as<std::int32_t>();
  params.context_length = call.row.plans[0].context_lengths.as<std::int32_t>();
  for (std::size_t set = 0; set < call.row.plans.size(); ++set) {
    const AttentionPlan& plan = call.row.plans[set];
    params.sets[set] = {.slot = call.row.slots[set].as<std::int32_t>(),
                        .page_table = plan.page_table.as<std::int32_t>(),
                        .first_page = plan.first_pages.as<std::int32_t>()};
  }
  params.concentration = call.rope.concentration;
  params.epsilon = call.numbers.epsilon;
  params.scale_log2 = call.numbers.attention_scale * 1.44269504f;
  params.swiglu_limit = call.numbers.swiglu_limit;
  params.layers = static_cast<int>(call.layers.size());
  params.experts = static_cast<int>(call.layers[0].experts->down.experts);
  params.page_shift = std::countr_zero(static_cast<unsigned>(call.kv.shape().page_size));
  for (std::size_t i = 0; i < call.layers.size(); ++i) {
    params.layer[i] = layer_params(call.layers[i], call.kv.layer(static_cast<int>(i)));
  }
  const auto launch =
      call.kv.shape().dtype == DType::kF8E4M3 ? &launch_decode_layers<true> : &launch_decode_layers<false>;
  launch(params, rose::cuda::multiprocessors(stream), rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
