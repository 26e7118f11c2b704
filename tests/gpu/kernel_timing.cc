// Times the kernels on cuda:0 at the shapes of gpt-oss and prints each beside its bound. Random inputs, three warm-ups,
// the median of the launches; FLOPs and bytes are counted by hand, the ceilings are those measured on an H200 (789
// TFLOP/s in bf16, 4.57 TB/s read).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "device/backend.h"
#include "ops/attention/attention_cuda.h"
#include "ops/experts/experts_cuda.h"
#include "ops/linear/linear_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::int_tensor;
using testing::OwnedTensor;

double median_us(const Stream& stream, int launches, const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) work();
  std::vector<double> times;
  for (int i = 0; i < launches; ++i) {
    const auto from = rose::cuda::record(stream.native());
    work();
    const auto to = rose::cuda::record(stream.native());
    rose::cuda::synchronize_event(to.get());
    times.push_back(rose::cuda::milliseconds_between(from.get(), to.get()) * 1e3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Random bf16 on the device: a block of random numbers, repeated.
Tensor random_on(Gpu& gpu, std::initializer_list<std::int64_t> sizes, std::uint64_t seed) {
  static const std::int64_t kBlock = 1 << 22;
  const OwnedTensor block = testing::random_tensor(DType::kBf16, {kBlock}, seed);
  Tensor shape(nullptr, DType::kBf16, Device{}, sizes);
  const Tensor out = gpu.like(shape);
  for (std::size_t at = 0; at < out.bytes(); at += block->bytes()) {
    copy_async(gpu.stream, static_cast<std::byte*>(out.raw()) + at, block->raw(),
               std::min(block->bytes(), out.bytes() - at));
  }
  gpu.stream.synchronize();
  return out;
}

void time_linear(int rows, int out, int in) {
  Gpu gpu;
  const Tensor x = random_on(gpu, {rows, in}, 1), y = random_on(gpu, {rows, out}, 2);
  Weight weight;
  weight.out = out;
  weight.in = in;
  weight.payload = random_on(gpu, {out, in}, 3);
  weight.bias = random_on(gpu, {out}, 4);
  const double flops = 2.0 * rows * out * in;
  for (const int n : {128, 192, 256}) {
    const double us = median_us(gpu.stream, 20, [&] { cuda::linear_tiled(gpu.stream, x, weight, y, {128, n}); });
    std::printf("linear %d x %d x %d, tile 128 x %d: %.1f us, %.0f TFLOP/s (%.0f %%)\n", rows, out, in, n, us,
                flops / us * 1e-6, flops / us * 1e-6 / 789 * 100);
  }
}

struct AttentionShape {
  const char* name;
  int sequences, context, rows, window;
  int kv_heads = 8;
};

void time_attention(const AttentionShape& shape) {
  constexpr int kPage = 32;
  const int kv_heads = shape.kv_heads, heads = 8 * kv_heads;
  Gpu gpu;
  const int oldest = shape.window > 0 ? std::max(0, shape.context - shape.rows - shape.window + 1) / kPage * kPage : 0;
  const int pages_each = (shape.context - oldest + kPage - 1) / kPage, pages = pages_each * shape.sequences;
  std::vector<std::int32_t> offsets{0}, table;
  for (int s = 0; s < shape.sequences; ++s) offsets.push_back(offsets.back() + shape.rows);
  for (int p = 0; p < pages; ++p) table.push_back(p);
  for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[random_bits(5, i) % i]);
  const std::vector<std::int32_t> contexts(static_cast<std::size_t>(shape.sequences), shape.context),
      firsts(static_cast<std::size_t>(shape.sequences), oldest / kPage);
  const int rows = shape.sequences * shape.rows;
  const OwnedTensor o = int_tensor(offsets), c = int_tensor(contexts), f = int_tensor(firsts), t = int_tensor(table);
  const AttentionPlan plan{.window = shape.window,
                           .sequences = shape.sequences,
                           .rows = rows,
                           .rows_longest = shape.rows,
                           .row_offsets = gpu.upload(*o),
                           .context_lengths = gpu.upload(*c),
                           .page_table = gpu.upload(*t).reshape({shape.sequences, pages_each}),
                           .first_pages = gpu.upload(*f)};
  const KvLayer kv{.keys = random_on(gpu, {pages, kv_heads, kPage, 64}, 1),
                   .values = random_on(gpu, {pages, kv_heads, kPage, 64}, 2),
                   .page_size = kPage};
  const Tensor q = random_on(gpu, {rows, heads, 64}, 3), sinks = random_on(gpu, {heads}, 4);
  const Tensor out = random_on(gpu, {rows, heads * 64}, 5);
  cuda::AttentionWork work{.shape = {.rows_max = rows, .sequences_max = shape.sequences, .kv_heads = kv_heads}};
  const OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::attention_work_bytes(gpu.stream, work.shape))},
                           0);
  work.memory = gpu.upload(*memory).raw();
  const double plan_us = median_us(gpu.stream, 10, [&] { cuda::plan_attention(gpu.stream, plan, work, kPage); });
  double pairs = 0;
  for (int r = 0; r < shape.rows; ++r) {
    const int position = shape.context - shape.rows + r;
    pairs += shape.window > 0 ? std::min(position + 1, shape.window) : position + 1;
  }
  const double flops = pairs * shape.sequences * heads * 256;
  const double bytes = static_cast<double>(shape.sequences) * (shape.context - oldest) * kv_heads * 256;
  const double us = median_us(gpu.stream, 20, [&] {
    cuda::attention(gpu.stream,
                    {.q = q, .kv = kv, .plan = plan, .work = work, .sinks = sinks, .scale = 0.125f, .out = out});
  });
  std::printf("attention %s: %.1f us, %.0f TFLOP/s, KV %.2f TB/s (plan %.1f us)\n", shape.name, us, flops / us * 1e-6,
              bytes / us * 1e-6, plan_us);
}

// Random bytes in [low, high] on the device: a block, repeated.
Tensor bytes_on(Gpu& gpu, std::initializer_list<std::int64_t> sizes, int low, int high) {
  const OwnedTensor block(DType::kU8, {(1 << 22) + 5});  // odd, so that rows do not repeat each other
  for (std::int64_t i = 0; i < block->elements(); ++i) {
    block->as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(low + static_cast<int>(random_bits(6, static_cast<std::uint64_t>(i)) %
                                                         static_cast<std::uint64_t>(high - low + 1)));
  }
  const Tensor out = gpu.like(Tensor(nullptr, DType::kU8, Device{}, sizes));
  for (std::size_t at = 0; at < out.bytes(); at += block->bytes()) {
    copy_async(gpu.stream, static_cast<std::byte*>(out.raw()) + at, block->raw(),
               std::min(block->bytes(), out.bytes() - at));
  }
  gpu.stream.synchronize();
  return out;
}

Weight expert_weight(Gpu& gpu, int experts, int out, int in) {
  Weight weight;
  weight.format = WeightFormat::kMxfp4;
  weight.experts = experts;
  weight.out = out;
  weight.in = in;
  weight.payload = bytes_on(gpu, {experts, out, in / 2}, 0, 255);
  weight.scales = bytes_on(gpu, {experts, out, in / 32}, 116, 122);
  weight.bias = random_on(gpu, {experts, out}, 8);
  return weight;
}

void time_experts(int experts, int rows) {
  constexpr int kWidth = 2880, kTop = 4;
  Gpu gpu;
  const ExpertWeights weights{.gate_up = expert_weight(gpu, experts, 2 * kWidth, kWidth),
                              .down = expert_weight(gpu, experts, kWidth, kWidth)};
  const OwnedTensor zero(DType::kI32, {1}, 0);
  const Tensor inexact = gpu.upload(*zero);
  const auto take = [&](std::size_t bytes) {
    return gpu.like(Tensor(nullptr, DType::kU8, Device{}, {static_cast<std::int64_t>(bytes)})).raw();
  };
  const auto gate_up = cuda::prepare(gpu.stream, weights.gate_up, take(cuda::prepared_bytes(weights.gate_up)),
                                     inexact.as<std::int32_t>());
  const auto down =
      cuda::prepare(gpu.stream, weights.down, take(cuda::prepared_bytes(weights.down)), inexact.as<std::int32_t>());
  cuda::ExpertWork work{.shape = {.rows_max = rows,
                                  .experts_per_token = kTop,
                                  .experts_held = experts,
                                  .hidden = kWidth,
                                  .intermediate = kWidth}};
  work.memory = take(cuda::expert_work_bytes(work.shape));
  const Tensor x = random_on(gpu, {rows, kWidth}, 1), y = random_on(gpu, {rows, kWidth}, 2);
  const OwnedTensor weight_rows(DType::kF32, {rows, kTop}, 0), chosen(DType::kI32, {rows, kTop});
  for (const bool balanced : {true, false}) {
    for (int r = 0; r < rows; ++r) {
      const auto start = random_bits(3, static_cast<std::uint64_t>(r));
      for (int i = 0; i < kTop; ++i) {  // balanced: every expert equally often; else four neighbours of a random one
        const auto e = balanced ? static_cast<std::uint64_t>(r) * kTop + static_cast<std::uint64_t>(i)
                                : start + static_cast<std::uint64_t>(i);
        chosen->row<std::int32_t>(r)[i] = static_cast<std::int32_t>(e % static_cast<std::uint64_t>(experts));
        weight_rows->row<float>(r)[i] = 0.25f;
      }
    }
    const Routing routing{.experts = gpu.upload(*chosen), .weights = gpu.upload(*weight_rows)};
    const double us = median_us(gpu.stream, 10, [&] {
      cuda::experts(gpu.stream, {.x = x,
                                 .routing = routing,
                                 .weights = weights,
                                 .gate_up = gate_up,
                                 .down = down,
                                 .swiglu_limit = 7,
                                 .work = work,
                                 .y = y});
    });
    const double flops = 2.0 * rows * kTop * 3 * kWidth * kWidth;
    std::printf("experts %d, %d rows, %s: %.1f us, %.0f TFLOP/s (%.0f %% of 1386)\n", experts, rows,
                balanced ? "balanced" : "random", us, flops / us * 1e-6, flops / us * 1e-6 / 1386 * 100);
  }
}

}  // namespace
}  // namespace rose::ops

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was timed is seen even where the next kernel hangs
  using rose::ops::time_attention;
  std::printf("%s\n", rose::cuda::device_description(0).c_str());
  rose::ops::time_linear(8192, 5120, 2880);
  rose::ops::time_linear(8192, 2880, 4096);
  time_attention({"full 8192", 1, 8192, 8192, 0});
  time_attention({"full 32768", 1, 32768, 32768, 0});
  time_attention({"window 8192", 1, 8192, 8192, 128});
  time_attention({"decode full 1k, batch 1", 1, 1024, 1, 0});
  time_attention({"decode full 8k, batch 1", 1, 8192, 1, 0});
  time_attention({"decode full 64k, batch 8", 8, 65536, 1, 0});
  time_attention({"decode window, batch 1", 1, 8192, 1, 128});
  time_attention({"decode full 1k, batch 128", 128, 1024, 1, 0});
  time_attention({"decode full 64k, batch 64, one KV head", 64, 65536, 1, 0, 1});
  rose::ops::time_experts(128, 8192);
  rose::ops::time_experts(32, 8192);
  rose::ops::time_experts(128, 512);
}
