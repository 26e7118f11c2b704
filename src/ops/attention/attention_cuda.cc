#include "ops/attention/attention_cuda.h"

#include <algorithm>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/attention/attention_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::make_tensor_map;
using rose::cuda::Swizzle;

// One page of one KV head is a box.
CUtensorMap page_map(const Tensor& pages) {
  const auto count = static_cast<std::uint64_t>(pages.size(0)), size = static_cast<std::uint64_t>(pages.size(1));
  const auto heads = static_cast<std::uint64_t>(pages.size(2)), dim = static_cast<std::uint64_t>(pages.size(3));
  return make_tensor_map<4>(pages.raw(), pages.dtype(),
                            {{dim, heads, size, count},
                             {dim * 2, heads * dim * 2, size * heads * dim * 2},
                             {static_cast<std::uint32_t>(dim), 1, static_cast<std::uint32_t>(size), 1}},
                            Swizzle::k128);
}

CUtensorMap query_map(const Tensor& q) {
  const auto rows = static_cast<std::uint64_t>(q.size(0)), heads = static_cast<std::uint64_t>(q.size(1));
  return make_tensor_map<3>(
      q.raw(), q.dtype(),
      {{64, heads, rows}, {128, heads * 128}, {64, PrefillConfig::kGroupHeads, PrefillConfig::kTokens}}, Swizzle::k128);
}

AttentionParams prefill_params(const PrefillAttention& call) {
  AttentionParams params{};
  params.query = query_map(call.q);
  params.keys = page_map(call.kv.keys);
  params.values = page_map(call.kv.values);
  params.row_offsets = call.plan.row_offsets.as<std::int32_t>();
  params.context_lengths = call.plan.context_lengths.as<std::int32_t>();
  params.page_table = call.plan.page_table.as<std::int32_t>();
  params.first_pages = call.plan.first_pages.as<std::int32_t>();
  params.tile_list = reinterpret_cast<const int2*>(call.tiles.as<std::int32_t>());
  params.sinks = reinterpret_cast<const std::uint16_t*>(call.sinks.as<Bf16>());
  params.out = reinterpret_cast<std::uint16_t*>(call.out.as<Bf16>());
  params.tiles = static_cast<int>(call.tiles.size(0));
  params.heads = static_cast<int>(call.q.size(1));
  params.kv_heads = static_cast<int>(call.kv.keys.size(2));
  params.page_size = call.kv.page_size;
  params.pages_max = static_cast<int>(call.plan.page_table.size(1));
  params.window = call.plan.window;
  params.scale_log2 = call.scale * 1.44269504f;
  params.inverse_scale = 1.f / call.scale;
  return params;
}

}  // namespace

void attention_prefill(const Stream& stream, const PrefillAttention& call) {
  CHECK(call.q.dtype() == DType::kBf16 && call.q.size(2) == 64 && call.q.size(1) == 8 * call.kv.keys.size(2) &&
            PrefillConfig::kKeys % call.kv.page_size == 0,
        "attention on {}: q {}, keys {}", stream.device().name(), call.q.describe(), call.kv.keys.describe());
  if (call.tiles.size(0) == 0) return;
  const AttentionParams params = prefill_params(call);
  const int blocks = std::min(params.tiles * params.kv_heads, rose::cuda::multiprocessors(stream));
  const cudaStream_t native = rose::cuda::native_stream(stream);
  call.polynomial ? launch_attention_prefill<true>(params, blocks, native)
                  : launch_attention_prefill<false>(params, blocks, native);
}

}  // namespace rose::ops::cuda
