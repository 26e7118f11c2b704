#include "ops/decode_layers/decode_layers.h"

#include <algorithm>
#include <bit>

#include "ops/check.h"
#include "ops/decode_layers/decode_layers_cuda.h"

namespace rose::ops {
namespace {

constexpr std::size_t kSetsMax = 2;

bool has_formats(const DecodeLayer& layer) {
  const auto dense = [](const Weight& weight) {
    return weight.format == WeightFormat::kBf16 && weight.payload.contiguous() && !weight.bias.empty();
  };
  const auto expert = [](const Weight& weight) {
    return weight.format == WeightFormat::kMxfp4 && weight.payload.contiguous() && !weight.bias.empty();
  };
  return dense(*layer.qkv) && dense(*layer.output) && dense(*layer.router) && expert(layer.experts->gate_up) &&
         expert(layer.experts->down) && layer.experts->first_expert == 0 &&
         layer.experts->down.experts == layer.router->out && static_cast<std::size_t>(layer.kv_set) < kSetsMax;
}

}  // namespace

bool has_decode_layers(const Stream& stream, const DecodeLayersShape& shape, std::span<const DecodeLayer> layers) {
  return !stream.device().is_cpu() && !layers.empty() &&
         cuda::has_decode_layers(stream, shape, static_cast<int>(layers.size())) &&
         std::ranges::all_of(layers, has_formats);
}

std::size_t decode_layers_work_bytes() { return cuda::decode_layers_work_bytes(); }

void decode_layers(const Stream& stream, std::span<const DecodeLayer> layers, const DecodeLayersRow& row,
                   const Rope& rope, const DecodeLayersNumbers& numbers, KvCache& kv, void* work,
                   const Tensor& residual) {
  if (stream.device().is_cpu()) no_kernel("decode_layers", stream);
  CHECK(!layers.empty() && std::ranges::all_of(layers, has_formats), "decode_layers: {} layers, or their formats",
        layers.size());
  check_tensor(stream, "decode_layers: residual", residual, {DType::kBf16}, {1, layers[0].qkv->in});
  check_tensor(stream, "decode_layers: position", row.position, {DType::kI32}, {1});
  CHECK(row.slots.size() == row.plans.size() && row.plans.size() <= kSetsMax, "decode_layers: {} slots, {} plans",
        row.slots.size(), row.plans.size());
  for (std::size_t set = 0; set < row.plans.size(); ++set) {
    const AttentionPlan& plan = row.plans[set];
    CHECK(plan.sequences == 1 && plan.rows == 1, "decode_layers: {} sequences of {} rows", plan.sequences, plan.rows);
    check_tensor(stream, "decode_layers: slot", row.slots[set], {DType::kI32}, {1});
    check_tensor(stream, "decode_layers: context length", plan.context_lengths, {DType::kI32}, {1});
    check_tensor(stream, "decode_layers: page table", plan.page_table, {DType::kI32}, {1, -1});
    check_tensor(stream, "decode_layers: first page", plan.first_pages, {DType::kI32}, {1});
  }
  const KvShape& cache = kv.shape();
  CHECK(
      (cache.dtype == DType::kBf16 || cache.dtype == DType::kF8E4M3) && std::has_single_bit(unsigned(cache.page_size)),
      "decode_layers: keys and values in {}, pages of {}", dtype_name(cache.dtype), cache.page_size);
  CHECK(work != nullptr && rope.concentration > 0 && !rope.table.empty(), "decode_layers: no work, or no RoPE table");
  cuda::decode_layers(
      stream,
      {.layers = layers, .row = row, .rope = rope, .numbers = numbers, .kv = kv, .work = work, .residual = residual});
}

}  // namespace rose::ops
