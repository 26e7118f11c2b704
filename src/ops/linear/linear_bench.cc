// The dense layers of gpt-oss-20b: bytes of weights and FLOPs as counters, so that the output is a share of the
// machine's memory speed (1 row) or of its FMA rate (128 rows).
#include <benchmark/benchmark.h>

#include "ops/linear/linear.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;

void bench_linear(benchmark::State& state, WeightFormat format, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = state.range(0);
  const Stream stream = Stream::cpu(static_cast<int>(state.range(1)));
  // Several copies, so that the weights come from memory as they do in a whole model.
  std::vector<OwnedWeight> weights;
  for (std::uint64_t i = 0; i < 4; ++i) {
    weights.push_back(testing::random_weight(format, {.out = out, .in = in}, i));
  }
  const OwnedTensor x = testing::random_tensor(DType::kF32, {rows, in}, 7);
  const OwnedTensor y(DType::kF32, {rows, out});
  std::size_t next = 0;
  for (auto _ : state) {
    linear(stream, *x, *weights[next], *y);
    next = (next + 1) % weights.size();
  }
  const auto per_iteration = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>((*weights[0]).bytes()) * 1e-9, per_iteration);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * in * out), per_iteration);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const int rows : {1, 4, 16, 128}) bench->Args({rows, 2});
  bench->Args({1, 1})->Args({128, 1});
}

BENCHMARK_CAPTURE(bench_linear, qkv_bf16, WeightFormat::kBf16, 2880, 5120)->Apply(shapes);
BENCHMARK_CAPTURE(bench_linear, qkv_fp8, WeightFormat::kFp8, 2880, 5120)->Apply(shapes);
BENCHMARK_CAPTURE(bench_linear, qkv_mxfp4, WeightFormat::kMxfp4, 2880, 5120)->Apply(shapes);
BENCHMARK_CAPTURE(bench_linear, output_bf16, WeightFormat::kBf16, 4096, 2880)->Apply(shapes);

// What the machine can do at most: a plain read of 1 GB, and the best FMA rate this build's tiles could reach is
// printed by the 128-row cases themselves.
void bench_read(benchmark::State& state) {
  const Stream stream = Stream::cpu(static_cast<int>(state.range(0)));
  const std::vector<std::uint64_t> words(1u << 25, 1);
  std::vector<std::uint64_t> sums(64);
  for (auto _ : state) {
    stream.parallel_for(64, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t part = begin; part < end; ++part) {
        std::uint64_t sum = 0;
        for (std::size_t i = part << 19; i < (part + 1) << 19; ++i) sum += words[i];
        sums[part] = sum;
      }
    });
    benchmark::DoNotOptimize(sums.data());
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(words.size()) * 8e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(bench_read)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rose::ops
