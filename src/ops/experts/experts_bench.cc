// The expert layer of gpt-oss-20b as published: 32 experts, 4 a token, 2880 wide, MXFP4. Bytes are those of the experts
// that the rows touch, each once; FLOPs those of the four experts of each row.
#include <benchmark/benchmark.h>

#include <set>

#include "ops/experts/experts.h"
#include "ops/testing/random.h"
#include "tensor/arena.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;
using testing::OwnedWeight;

constexpr std::int64_t kExperts = 32;
constexpr std::int64_t kPerToken = 4;
constexpr std::int64_t kWidth = 2880;

std::int64_t scratch_elements(std::int64_t rows) {
  return experts_scratch_elements(Stream::cpu(1), {.rows_max = rows,
                                                   .experts_per_token = kPerToken,
                                                   .experts_held = kExperts,
                                                   .hidden = kWidth,
                                                   .intermediate = kWidth});
}

void bench_experts(benchmark::State& state, WeightFormat format) {
  const std::int64_t rows = state.range(0);
  const Stream stream = Stream::cpu(static_cast<int>(state.range(1)));
  const OwnedWeight gate_up = testing::random_weight(format, {.experts = kExperts, .out = 2 * kWidth, .in = kWidth}, 1);
  const OwnedWeight down = testing::random_weight(format, {.experts = kExperts, .out = kWidth, .in = kWidth}, 2);
  const OwnedTensor x = testing::random_tensor(DType::kF32, {rows, kWidth}, 3);
  const OwnedTensor y(DType::kF32, {rows, kWidth});
  const OwnedTensor ids(DType::kI32, {rows, kPerToken});
  const OwnedTensor weights = testing::random_tensor(DType::kF32, {rows, kPerToken}, 4);
  Arena arena(Device{}, static_cast<std::size_t>(scratch_elements(rows)) * 4 + 4096, "scratch");
  const Tensor scratch = arena.tensor("scratch", DType::kF32, {scratch_elements(rows)});
  double touched = 0;
  std::uint64_t step = 0;
  for (auto _ : state) {
    std::set<std::int32_t> distinct;
    for (std::int64_t i = 0; i < rows * kPerToken; ++i) {  // other experts each time, so that weights come from memory
      const std::uint64_t first = random_bits(step, static_cast<std::uint64_t>(i / kPerToken));
      ids->as<std::int32_t>()[i] =
          static_cast<std::int32_t>((first + static_cast<std::uint64_t>(i % kPerToken) * 7) % kExperts);
      distinct.insert(ids->as<std::int32_t>()[i]);
    }
    ++step;
    touched += static_cast<double>(distinct.size());
    experts(stream, *x, {*ids, *weights}, {*gate_up, *down, 0}, 7, scratch, *y);
  }
  const double expert_bytes = static_cast<double>((*gate_up).bytes() + (*down).bytes()) / kExperts;
  state.counters["GB/s"] = benchmark::Counter(touched * expert_bytes * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * kPerToken * 3 * kWidth * kWidth),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(bench_experts, mxfp4, WeightFormat::kMxfp4)
    ->ArgNames({"rows", "threads"})
    ->Args({1, 1})
    ->Args({1, 2})
    ->Args({8, 2})
    ->Args({128, 1})
    ->Args({128, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rose::ops
