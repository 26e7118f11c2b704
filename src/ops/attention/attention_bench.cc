// One layer of gpt-oss: 64 heads, 8 KV heads of 64, bf16 cache. Bytes: visible keys and values once; FLOPs: 4 x 64 per
// (row, head, visible key).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

// `rows` new rows of one sequence of `context` positions.
void bench_attention(benchmark::State& state, int window) {
  const auto context = static_cast<std::int32_t>(state.range(0));
  const auto rows = static_cast<std::int32_t>(state.range(1));
  const Stream stream = Stream::cpu(static_cast<int>(state.range(2)));
  constexpr std::int64_t kHeads = 64, kKvHeads = 8, kDim = 64;
  constexpr int kPageSize = 32;
  const std::int32_t pages = (context + kPageSize - 1) / kPageSize;
  const OwnedTensor keys = testing::random_tensor(DType::kBf16, {pages, kKvHeads, kPageSize, kDim}, 1);
  const OwnedTensor values = testing::random_tensor(DType::kBf16, {pages, kKvHeads, kPageSize, kDim}, 2);
  const OwnedTensor q = testing::random_tensor(DType::kF32, {rows, kHeads, kDim}, 3);
  const OwnedTensor sinks = testing::random_tensor(DType::kBf16, {kHeads}, 4);
  const OwnedTensor out(DType::kF32, {rows, kHeads * kDim});
  const OwnedTensor table(DType::kI32, {1, pages});
  for (std::int32_t p = 0; p < pages; ++p) table->as<std::int32_t>()[p] = pages - 1 - p;
  const OwnedTensor offsets = testing::int_tensor({0, rows});
  const OwnedTensor contexts = testing::int_tensor({context});
  const OwnedTensor firsts = testing::int_tensor({0});
  const AttentionPlan plan{.window = window,
                           .sequences = 1,
                           .rows = rows,
                           .rows_longest = rows,
                           .context_longest = context,
                           .row_offsets = *offsets,
                           .context_lengths = *contexts,
                           .page_table = *table,
                           .first_pages = *firsts};
  const KvLayer kv{*keys, *values, kPageSize};
  for (auto _ : state) attention(stream, *q, kv, plan, *sinks, 0.125f, *out);

  const std::int64_t most = window > 0 ? window : context;
  const std::int64_t touched = std::min<std::int64_t>(context, most + rows - 1);
  double pairs = 0;
  for (std::int64_t p = context - rows; p < context; ++p) pairs += static_cast<double>(std::min(p + 1, most));
  const auto per_iteration = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(touched * kKvHeads * kDim * 4) * 1e-9, per_iteration);
  state.counters["GFLOP/s"] = benchmark::Counter(pairs * kHeads * kDim * 4e-9, per_iteration);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"context", "rows", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  bench->Args({8192, 1, 1})->Args({8192, 1, 2})->Args({8192, 128, 1})->Args({2048, 512, 2})->Args({512, 512, 2});
}

BENCHMARK_CAPTURE(bench_attention, full, 0)->Apply(shapes);
BENCHMARK_CAPTURE(bench_attention, window_128, 128)->Apply(shapes);

}  // namespace
}  // namespace rose::ops
