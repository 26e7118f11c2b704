// The few-row experts on a GPU at published sizes: weights of 128 (or 32) experts of random bytes, a fresh routing each
// call so that L2 (60 MB) never holds what the next call wants. bytes_per_second counts each hit expert once.
#ifdef ROSE_CUDA
#include <benchmark/benchmark.h>

#include <set>
#include <vector>

#include "ops/experts/experts_decode_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

constexpr int kWidth = 2880, kTop = 4, kRoutings = 8;

Weight device_weight(testing::Gpu& gpu, int experts, int out) {
  Weight weight;
  weight.format = WeightFormat::kMxfp4;
  weight.experts = experts;
  weight.out = out;
  weight.in = kWidth;
  // Only shapes matter on the host: like() never reads it. Codes are -1 and 3 at 2^-7, so that sums stay ordinary.
  const auto on_device = [&](DType dtype, std::initializer_list<std::int64_t> sizes, int byte) {
    return gpu.like(Tensor(nullptr, dtype, Device{}, sizes), byte);
  };
  weight.payload = on_device(DType::kU8, {experts, out, kWidth / 2}, 0x5a);
  weight.scales = on_device(DType::kU8, {experts, out, kWidth / 32}, 120);
  weight.bias = on_device(DType::kBf16, {experts, out}, 0);
  return weight;
}

void experts_decode(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(0)), experts = static_cast<int>(state.range(1));
  testing::Gpu gpu;
  const ExpertWeights weights{.gate_up = device_weight(gpu, experts, 2 * kWidth),
                              .down = device_weight(gpu, experts, kWidth)};
  std::vector<Routing> routings;
  std::size_t hit = 0;
  for (int n = 0; n < kRoutings; ++n) {
    OwnedTensor chosen(DType::kI32, {rows, kTop}), share(DType::kF32, {rows, kTop});
    std::set<int> distinct;
    for (int r = 0; r < rows; ++r) {
      std::set<int> mine;
      for (std::uint64_t draw = 0; mine.size() < kTop; ++draw) {
        mine.insert(static_cast<int>(random_bits(static_cast<std::uint64_t>(n * 64 + r), draw) %
                                     static_cast<std::uint64_t>(experts)));
      }
      int i = 0;
      for (const int expert : mine) {
        chosen->row<std::int32_t>(r)[i] = expert;
        share->row<float>(r)[i++] = 0.25f;
      }
      distinct.insert(mine.begin(), mine.end());
    }
    hit += distinct.size();
    routings.push_back({.experts = gpu.upload(*chosen), .weights = gpu.upload(*share)});
  }
  const cuda::ExpertDecodeShape shape{
      .rows_max = rows, .experts_per_token = kTop, .hidden = kWidth, .intermediate = kWidth};
  const OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::experts_decode_work_bytes(shape))});
  const auto host_x = testing::random_tensor(DType::kBf16, {rows, kWidth}, 1);
  const Tensor work = gpu.like(*memory), x = gpu.upload(*host_x), y = gpu.like(*host_x);
  for (auto _ : state) {
    for (int n = 0; n < kRoutings * 4; ++n) {
      cuda::experts_decode(gpu.stream, {.x = x,
                                        .routing = routings[static_cast<std::size_t>(n % kRoutings)],
                                        .weights = weights,
                                        .swiglu_limit = 7,
                                        .shape = shape,
                                        .work = work.raw(),
                                        .y = y});
    }
    gpu.stream.synchronize();
  }
  const double calls = static_cast<double>(state.iterations()) * kRoutings * 4;
  const double bytes = static_cast<double>(hit) / kRoutings * 3 * kWidth * (kWidth / 2 + kWidth / 32);
  state.counters["us_per_call"] =
      benchmark::Counter(calls / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes"] = benchmark::Counter(calls * bytes, benchmark::Counter::kIsRate);
}

BENCHMARK(experts_decode)
    ->Args({1, 128})
    ->Args({2, 128})
    ->Args({8, 128})
    ->Args({16, 128})
    ->Args({64, 128})
    ->Args({1, 32})
    ->Args({64, 32})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rose::ops
#endif
