// A row of gpt-oss's 201,088 logits.
#include <benchmark/benchmark.h>

#include "ops/sample/sample.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

void bench_sample(benchmark::State& state, SampleRow row) {
  constexpr std::int64_t kVocabulary = 201088;
  const Stream stream = Stream::cpu(1);
  const OwnedTensor logits = testing::random_tensor(DType::kF32, {1, kVocabulary}, 1, 12);
  const OwnedTensor tokens(DType::kI32, {1});
  const OwnedTensor logprobs(DType::kF32, {1});
  const OwnedTensor top_tokens(DType::kI32, {1, kTopLogprobsMax});
  const OwnedTensor top_logprobs(DType::kF32, {1, kTopLogprobsMax});
  for (auto _ : state) {
    sample(stream, {*logits, &row, nullptr, {}}, {*tokens, *logprobs, *top_tokens, *top_logprobs, {}});
    ++row.counter;
  }
  state.counters["logits/s"] = benchmark::Counter(kVocabulary, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(bench_sample, greedy, SampleRow{.temperature = 0})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench_sample, plain, SampleRow{})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench_sample, top_p, SampleRow{.top_p = 0.9f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench_sample, top_k, SampleRow{.top_k = 50})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench_sample, top_logprobs, SampleRow{.top_logprobs = 20})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rose::ops
