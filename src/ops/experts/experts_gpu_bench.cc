// The experts of one layer on a GPU at published sizes, as a captured graph of several calls. Weights are random bytes
// of all 128 (or 32) experts, far more than L2 holds; few rows take a fresh routing each call, so that L2 never holds
// what the next call wants. `weights` counts the bytes of each expert that is hit once.
#ifdef ROSE_CUDA
#include <benchmark/benchmark.h>

#include <cstring>
#include <set>
#include <vector>

#include "device/backend.h"
#include "ops/experts/experts_gpu_problem.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

constexpr int kWidth = 2880, kTop = 4;

enum Choice { kRandom, kBalanced };

std::uint64_t unsigned_of(int value) { return static_cast<std::uint64_t>(value); }

// Random bytes in [low, high]: a block, repeated; its size is odd, so that rows do not repeat each other.
Tensor noise(Gpu& gpu, DType dtype, std::initializer_list<std::int64_t> sizes, int low, int high) {
  OwnedTensor block(DType::kU8, {(1 << 24) + 4099});
  for (std::int64_t i = 0; i < block->elements(); ++i) {
    const std::uint64_t bits = random_bits(unsigned_of(low + 1), static_cast<std::uint64_t>(i));
    block->as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(low + static_cast<int>(bits % unsigned_of(high - low + 1)));
  }
  const Tensor out = gpu.like(Tensor(nullptr, dtype, Device{}, sizes));
  for (std::size_t at = 0; at < out.bytes(); at += block->bytes()) {
    copy_async(gpu.stream, static_cast<std::byte*>(out.raw()) + at, block->raw(),
               std::min(block->bytes(), out.bytes() - at));
    gpu.stream.synchronize();
  }
  return out;
}

Weight device_weight(Gpu& gpu, WeightFormat format, int experts, int out) {
  Weight weight;
  weight.format = format;
  weight.experts = experts;
  weight.out = out;
  weight.in = kWidth;
  if (format == WeightFormat::kMxfp4) {
    weight.payload = noise(gpu, DType::kU8, {experts, out, kWidth / 2}, 0, 255);
    weight.scales = noise(gpu, DType::kU8, {experts, out, kWidth / 32}, 114, 122);
  } else {
    weight.payload = noise(gpu, DType::kF8E4M3, {experts, out, kWidth}, 0, 119);
    const std::int64_t rows = (out + 127) / 128, columns = (kWidth + 127) / 128;
    OwnedTensor scales(DType::kF32, {experts, rows, columns});
    for (std::int64_t i = 0; i < scales->elements(); ++i) scales->as<float>()[i] = 1.f / 4096;
    weight.scales = gpu.upload(*scales);
  }
  const OwnedTensor bias = testing::random_tensor(DType::kBf16, {experts, out}, 3);
  weight.bias = gpu.upload(*bias);
  return weight;
}

// Row r takes experts 4 r.. (balanced) or four random ones; `hit` grows by the number of different experts.
Routing routing(Gpu& gpu, Choice choice, int rows, int experts, int call, std::size_t* hit) {
  OwnedTensor chosen(DType::kI32, {rows, kTop}), share(DType::kF32, {rows, kTop});
  std::set<int> distinct;
  for (int r = 0; r < rows; ++r) {
    std::set<int> mine;
    for (std::uint64_t draw = 0; mine.size() < kTop; ++draw) {
      const std::uint64_t number = choice == kBalanced ? unsigned_of((call * 37 + r) * kTop) + draw
                                                       : random_bits(unsigned_of(call * 100000 + r), draw);
      mine.insert(static_cast<int>(number % unsigned_of(experts)));
    }
    int i = 0;
    for (const int expert : mine) {
      chosen->row<std::int32_t>(r)[i] = expert;
      share->row<float>(r)[i++] = 0.25f;
    }
    distinct.insert(mine.begin(), mine.end());
  }
  *hit += distinct.size();
  return {.experts = gpu.upload(*chosen), .weights = gpu.upload(*share)};
}

void bench(benchmark::State& state, WeightFormat format, Choice choice) {
  const auto rows = static_cast<int>(state.range(0)), experts = static_cast<int>(state.range(1));
  const int calls = rows <= 64 ? 16 : 4;
  Gpu gpu;
  const testing::GpuExperts held(gpu, device_weight(gpu, format, experts, 2 * kWidth),
                                 device_weight(gpu, format, experts, kWidth));
  std::vector<Routing> routings;
  std::size_t hit = 0;
  for (int call = 0; call < calls; ++call) routings.push_back(routing(gpu, choice, rows, experts, call, &hit));
  cuda::ExpertWork work{.shape = {.rows_max = rows,
                                  .experts_per_token = kTop,
                                  .experts_held = experts,
                                  .hidden = kWidth,
                                  .intermediate = kWidth}};
  work.memory =
      gpu.like(Tensor(nullptr, DType::kU8, Device{}, {static_cast<std::int64_t>(cuda::expert_work_bytes(work.shape))}))
          .raw();
  const OwnedTensor host_x = testing::random_tensor(DType::kBf16, {rows, kWidth}, 1, 2.f);
  const Tensor x = gpu.upload(*host_x), y = gpu.like(*host_x);
  const auto run_calls = [&] {
    for (const Routing& chosen : routings) {
      cuda::experts(gpu.stream,
                    {.x = x, .routing = chosen, .weights = held.weights, .swiglu_limit = 7, .work = work, .y = y});
    }
  };
  run_calls();
  gpu.stream.synchronize();
  rose::cuda::begin_capture(gpu.stream.native());
  run_calls();
  const auto graph = rose::cuda::end_capture(gpu.stream.native());
  for (auto _ : state) {
    rose::cuda::launch_graph(graph.get(), gpu.stream.native());
    gpu.stream.synchronize();
  }
  const double done = static_cast<double>(state.iterations()) * calls;
  const double row_bytes = format == WeightFormat::kMxfp4 ? kWidth / 2 + kWidth / 32 : kWidth;
  state.counters["us_per_call"] =
      benchmark::Counter(done / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["flops"] =
      benchmark::Counter(done * 2.0 * rows * kTop * 3 * kWidth * kWidth, benchmark::Counter::kIsRate);
  state.counters["weights"] =
      benchmark::Counter(done * static_cast<double>(hit) / calls * 3 * kWidth * row_bytes, benchmark::Counter::kIsRate);
}

void rows_of_interest(benchmark::internal::Benchmark* benchmark) {
  for (const int experts : {128, 32}) {
    for (const int rows : {1, 8, 64, 128, 256, 512, 1024, 8192}) benchmark->Args({rows, experts});
  }
  benchmark->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(bench, experts_mxfp4_random, WeightFormat::kMxfp4, kRandom)->Apply(rows_of_interest);
BENCHMARK_CAPTURE(bench, experts_mxfp4_balanced, WeightFormat::kMxfp4, kBalanced)->Apply(rows_of_interest);
BENCHMARK_CAPTURE(bench, experts_fp8_random, WeightFormat::kFp8, kRandom)->Apply(rows_of_interest);

}  // namespace
}  // namespace rose::ops
#endif
