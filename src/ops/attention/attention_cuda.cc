#include "ops/attention/attention_cuda.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/attention/attention_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::make_tensor_map;
using rose::cuda::MapType;
using rose::cuda::Swizzle;

int box_rows(int page_size) { return std::min(page_size, kBoxRowsMax); }

// Boxes are pages of one KV head, or parts of them, in lines of 128 bytes: one row of bf16, two of e4m3.
CUtensorMap page_map(const Tensor& pages) {
  const std::int64_t size = pages.size(2), dim = pages.size(3);
  if (pages.dtype() == DType::kF8E4M3) {
    return rose::cuda::matrix_map(pages.raw(), MapType::kByte, pages.elements() / 128, 128, 128,
                                  box_rows(static_cast<int>(size)) / 2, 128, Swizzle::k128);
  }
  return rose::cuda::matrix_map(pages.raw(), MapType::kBf16, pages.elements() / dim, dim, dim,
                                box_rows(static_cast<int>(size)), static_cast<int>(dim), Swizzle::k128);
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
    decode_rows_list = take(decode_rows * sizeof(DecodeRow));
    decode_runs = take(static_cast<std::size_t>(blocks) * sizeof(DecodeRun));
    tile_list = take((rows / PrefillConfig::kTokens + sequences) * 8);
    decode_offsets = take((decode_rows + 1) * 4);
    arrivals = take(decode_rows * static_cast<std::size_t>(shape.kv_heads) * 4);
    tile_count = take(4);
    pieces = take(static_cast<std::size_t>(blocks) * 2 * DecodeConfig::kPieceBytes);
  }
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 127) / 128 * 128;
    return at;
  }
  std::size_t bytes = 0, decode_rows_list, decode_runs, tile_list, decode_offsets, arrivals, tile_count, pieces;
};

int decode_blocks(const Stream& stream) { return rose::cuda::multiprocessors(stream) * DecodeConfig::kBlocksPerSm; }

template <class T>
T* at(const AttentionWork& work, std::size_t offset) {
  return static_cast<T*>(static_cast<void*>(static_cast<std::byte*>(work.memory) + offset));
}

// Blocks that work at one time read the same keys and values, at places that drift apart: those of few heads stay in L2
// while those of many would not. (An order, no more: a captured step keeps the one it was captured with.)
int heads_at_once(const AttentionPlan& plan, int kv_heads) {
  return plan.window == 0 && plan.context_longest > kContextInL2 ? std::gcd(kv_heads, 2) : kv_heads;
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
  params.page_shift = std::countr_zero(static_cast<unsigned>(page_size));
  params.box_rows = box_rows(page_size);
  params.pages_max = static_cast<int>(plan.page_table.size(1));
  params.window = plan.window;
  params.heads_at_once = heads_at_once(plan, work.shape.kv_heads);
  params.reads_own_rows = plan.reads_own_rows;
  params.decode_blocks = decode_blocks(stream);
  // A window is read by one block: adding up pieces would take longer than reading them.
  const bool whole = plan.window > 0 && plan.window <= DecodeConfig::kWindowMax;
  params.decode_item_units =
      whole ? (plan.window + params.box_rows - 1 + DecodeConfig::kUnit - 1) / DecodeConfig::kUnit : 1;
  params.tile_count = at<int>(work, layout.tile_count);
  params.tile_list = at<int2>(work, layout.tile_list);
  params.decode_rows = at<DecodeRow>(work, layout.decode_rows_list);
  params.decode_runs = at<DecodeRun>(work, layout.decode_runs);
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
            (call.kv.keys.dtype() == DType::kBf16 || call.kv.keys.dtype() == DType::kF8E4M3) &&
            call.kv.page_size >= (call.kv.keys.dtype() == DType::kBf16 ? 8 : kE4m3PageLeast) &&
            std::has_single_bit(static_cast<unsigned>(call.kv.page_size)) &&
            call.kv.keys.elements() / 64 <= std::numeric_limits<std::int32_t>::max(),
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
  static_assert(kScaleInQuery * 1.44269504f == 1, "what the prefill kernels look for");
  params.scale_log2 = call.scale * 1.44269504f;
  const cudaStream_t native = rose::cuda::native_stream(stream);
  const bool long_rows = call.plan.rows_longest > DecodeConfig::kRowsMax;
  const bool e4m3 = call.kv.keys.dtype() == DType::kF8E4M3;
  if (long_rows) {
    (e4m3 ? launch_attention_prefill_e4m3 : launch_attention_prefill)(params, rose::cuda::multiprocessors(stream),
                                                                      native);
  }
  if (!long_rows || call.plan.sequences > 1) {
    (e4m3 ? launch_attention_decode_e4m3 : launch_attention_decode)(params, native);
  }
}

}  // namespace rose::ops::cuda
