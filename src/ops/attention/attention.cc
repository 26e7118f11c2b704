#include "ops/attention/attention.h"

#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_x86.h"
#include "ops/check.h"

namespace rose::ops {
namespace {

void check_plan(const Stream& stream, const AttentionPlan& plan, std::int64_t rows) {
  CHECK(plan.rows == rows, "attention: a plan of {} rows for {}", plan.rows, rows);
  CHECK(plan.window >= 0 && plan.sequences >= 0, "attention: window {}, {} sequences", plan.window, plan.sequences);
  check_tensor(stream, "attention: row_offsets", plan.row_offsets, {DType::kI32}, {plan.sequences + 1});
  check_tensor(stream, "attention: context_lengths", plan.context_lengths, {DType::kI32}, {plan.sequences});
  check_tensor(stream, "attention: page_table", plan.page_table, {DType::kI32}, {plan.sequences, -1});
  check_tensor(stream, "attention: first_pages", plan.first_pages, {DType::kI32}, {plan.sequences});
}

// What a kernel would read out of bounds if it were wrong; on the CPU the numbers can be looked at.
void check_sequences(const KvLayer& kv, const AttentionPlan& plan) {
  const auto* offsets = plan.row_offsets.as<std::int32_t>();
  CHECK(offsets[0] == 0 && offsets[plan.sequences] == plan.rows, "attention: rows {}..{} of {}", offsets[0],
        offsets[plan.sequences], plan.rows);
  for (int s = 0; s < plan.sequences; ++s) {
    const int rows = offsets[s + 1] - offsets[s];
    const int length = plan.context_lengths.as<std::int32_t>()[s];
    CHECK(rows >= 0 && length >= rows, "attention: sequence {} has {} rows, {} positions", s, rows, length);
    if (rows == 0) continue;
    const int first = plan.window > 0 ? std::max(0, length - rows - plan.window + 1) : 0;
    const int first_page = plan.first_pages.as<std::int32_t>()[s];
    CHECK(first_page >= 0 && first / kv.page_size >= first_page, "attention: sequence {} needs position {}, page {} on",
          s, first, first_page);
    const int last = (length - 1) / kv.page_size - first_page;
    CHECK(last < plan.page_table.size(1), "attention: sequence {} needs {} pages of {}", s, last + 1,
          plan.page_table.size(1));
    for (int entry = first / kv.page_size - first_page; entry <= last; ++entry) {
      const int page = plan.page_table.row<std::int32_t>(s)[entry];
      CHECK(page >= 0 && page < kv.keys.size(0), "attention: sequence {} entry {} is page {} of {}", s, entry, page,
            kv.keys.size(0));
    }
  }
}

}  // namespace

std::size_t attention_work_bytes(const Stream& stream, const AttentionWorkShape& shape) {
  return stream.device().is_cpu() ? 0 : cuda::attention_work_bytes(stream, shape);
}

void plan_attention(const Stream& stream, const AttentionPlan& plan, int page_size) {
  if (!stream.device().is_cpu()) cuda::plan_attention(stream, plan, plan.work, page_size);
}

void attention(const Stream& stream, const Tensor& q, const KvLayer& kv, const AttentionPlan& plan, const Tensor& sinks,
               float scale, const Tensor& out) {
  check_tensor(stream, "attention: q", q, {DType::kF32, DType::kBf16}, {-1, -1, -1});
  CHECK(q.contiguous(), "attention: q {} is not contiguous", q.describe());
  const std::int64_t heads = q.size(1);
  const std::int64_t head_dim = q.size(2);
  check_tensor(stream, "attention: keys", kv.keys, {DType::kBf16, DType::kF32, DType::kF8E4M3},
               {-1, -1, kv.page_size, head_dim});
  const std::int64_t kv_heads = kv.kv_heads();
  check_tensor(stream, "attention: values", kv.values, {kv.keys.dtype()},
               {kv.keys.size(0), kv_heads, kv.page_size, head_dim});
  CHECK(kv.keys.contiguous() && kv.values.contiguous(), "attention: {} is not contiguous", kv.keys.describe());
  CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: {} heads, {} KV heads", heads, kv_heads);
  check_tensor(stream, "attention: sinks", sinks, {DType::kBf16}, {heads});
  check_activations(stream, "attention: out", out, q.size(0), heads * head_dim);
  check_plan(stream, plan, q.size(0));
  if (plan.rows == 0) return;
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      check_sequences(kv, plan);
      if (x86::attention_fits(head_dim, heads / kv_heads)) {
        x86::attention(stream, q, kv, plan, sinks, scale, out);
      } else {
        ref::attention(stream, q, kv, plan, sinks, scale, out);
      }
      return;
    case DeviceKind::kCuda:
      cuda::attention(stream,
                      {.q = q, .kv = kv, .plan = plan, .work = plan.work, .sinks = sinks, .scale = scale, .out = out});
      return;
  }
}

}  // namespace rose::ops
