#include "ops/attention/attention_cuda.h"

#include <algorithm>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/attention/attention_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::make_tensor_map;
using rose::cuda::MapType;
using rose::cuda::Swizzle;

// One page of one KV head is a box.
CUtensorMap page_map(const Tensor& pages) {
  const std::int64_t size = pages.size(2), dim = pages.size(3);
  return rose::cuda::matrix_map(pages.raw(), MapType::kBf16, pages.elements() / dim, dim, dim, static_cast<int>(size),
                                static_cast<int>(dim), Swizzle::k128);
}

CUtensorMap query_map(const Tensor& q) {
  const auto rows = static_cast<std::uint64_t>(q.size(0)), heads = static_cast<std::uint64_t>(q.size(1));
  return make_tensor_map<3>(
      q.raw(), MapType::kBf16,
      {{64, heads, rows}, {128, heads * 128}, {64, PrefillConfig::kGroupHeads, PrefillConfig::kTokens}}, Swizzle::k128);
}

// Where each list lies in the work memory.
struct WorkLayout {
  WorkLayout(const AttentionWorkShape& shape, int blocks) {
    const auto rows = static_cast<std::size_t>(shape.rows_max),
               sequences = static_cast<std::size_t>(shape.sequences_max);
    const std::size_t decode_rows = std::min(rows, sequences * DecodeConfig::kRowsMax);
    decode_list = take(decode_rows * 16);
    tile_list = take((rows / PrefillConfig::kTokens + sequences) * 8);
    decode_offsets = take((decode_rows + 1) * 4);
    arrivals = take(decode_rows * static_cast<std::size_t>(shape.kv_heads) * 4);
    counts = take(8);
    pieces = take(static_cast<std::size_t>(blocks) * 2 * DecodeConfig::kPieceBytes);
  }
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 127) / 128 * 128;
    return at;
  }
  std::size_t bytes = 0, decode_list, tile_list, decode_offsets, arrivals, counts, pieces;
};

int decode_blocks(const Stream& stream) { return rose::cuda::multiprocessors(stream) * DecodeConfig::kBlocksPerSm; }

template <class T>
T* at(const AttentionWork& work, std::size_t offset) {
  return static_cast<T*>(static_cast<void*>(static_cast<std::byte*>(work.memory) + offset));
}

AttentionParams plan_params(const Stream& stream, const AttentionPlan& plan, const AttentionWork& work, int page_size) {
  const WorkLayout layout(work.shape, decode_blocks(stream));
  AttentionParams params{};
  params.row_offsets = plan.row_offsets.as<std::int32_t>();
  params.context_lengths = plan.context_lengths.as<std::int32_t>();
  params.page_table = plan.page_table.as<std::int32_t>();
  params.first_pages = plan.first_pages.as<std::int32_t>();
  params.sequences = plan.sequences;
  params.kv_heads = work.shape.kv_heads;
  params.page_size = page_size;
  params.pages_max = static_cast<int>(plan.page_table.size(1));
  params.window = plan.window;
  params.tile_count = at<int>(work, layout.counts);
  params.decode_counts = at<int>(work, layout.counts + 4);
  params.tile_list = at<int2>(work, layout.tile_list);
  params.decode_rows = at<int4>(work, layout.decode_list);
  params.decode_offsets = at<int>(work, layout.decode_offsets);
  params.decode_arrivals = at<int>(work, layout.arrivals);
  params.decode_scratch = at<void>(work, layout.pieces);
  return params;
}

}  // namespace

std::size_t attention_work_bytes(const Stream& stream, const AttentionWorkShape& shape) {
  return WorkLayout(shape, decode_blocks(stream)).bytes;
}

void plan_attention(const Stream& stream, const AttentionPlan& plan, const AttentionWork& work, int page_size) {
  CHECK(plan.rows <= work.shape.rows_max && plan.sequences <= work.shape.sequences_max,
        "attention plan of {} rows, {} sequences in work memory for {}, {}", plan.rows, plan.sequences,
        work.shape.rows_max, work.shape.sequences_max);
  if (plan.rows == 0) return;
  launch_attention_plan(plan_params(stream, plan, work, page_size), rose::cuda::native_stream(stream));
}

void attention(const Stream& stream, const AttentionCall& call) {
  CHECK(call.q.dtype() == DType::kBf16 && call.q.size(2) == 64 && call.q.size(1) == 8 * call.kv.kv_heads() &&
            call.kv.keys.dtype() == DType::kBf16 && DecodeConfig::kUnit % call.kv.page_size == 0,
        "attention on {}: q {}, keys {}", stream.device().name(), call.q.describe(), call.kv.keys.describe());
  if (call.plan.rows == 0) return;
  AttentionParams params = plan_params(stream, call.plan, call.work, call.kv.page_size);
  params.query = query_map(call.q);
  params.keys = page_map(call.kv.keys);
  params.values = page_map(call.kv.values);
  params.query_rows = reinterpret_cast<const std::uint16_t*>(call.q.as<Bf16>());
  params.sinks = reinterpret_cast<const std::uint16_t*>(call.sinks.as<Bf16>());
  params.out = reinterpret_cast<std::uint16_t*>(call.out.as<Bf16>());
  params.heads = static_cast<int>(call.q.size(1));
  params.scale_log2 = call.scale * 1.44269504f;
  params.inverse_scale = 1.f / call.scale;
  const cudaStream_t native = rose::cuda::native_stream(stream);
  if (call.plan.rows_longest > DecodeConfig::kRowsMax) {
    const int blocks = rose::cuda::multiprocessors(stream);
    call.polynomial ? launch_attention_prefill<true>(params, blocks, native)
                    : launch_attention_prefill<false>(params, blocks, native);
  }
  launch_attention_decode(params, decode_blocks(stream), native);
}

}  // namespace rose::ops::cuda
