#include <array>
#include <cmath>

#include "base/check.h"
#include "ops/rope_append/rope_append.h"
#include "ops/rows.h"

namespace rose::ops::ref {
namespace {

constexpr std::int64_t kHeadDimMax = 512;

struct Angles {
  std::array<float, kHeadDimMax / 2> cosine;
  std::array<float, kHeadDimMax / 2> sine;

  // position * frequency is formed in f32, as the published references do; its cosine and sine are taken in f64, whose
  // range reduction is exact enough for any angle up to 131071 radians.
  Angles(const Rope& rope, std::int32_t position) {
    for (std::size_t t = 0; t < rope.frequencies.size(); ++t) {
      const float angle = static_cast<float>(position) * rope.frequencies[t];
      const auto concentration = static_cast<double>(rope.concentration);
      cosine[t] = static_cast<float>(concentration * std::cos(static_cast<double>(angle)));
      sine[t] = static_cast<float>(concentration * std::sin(static_cast<double>(angle)));
    }
  }

  void rotate(float* x, std::size_t half) const {
    for (std::size_t t = 0; t < half; ++t) {
      const float low = x[t];
      const float high = x[t + half];
      x[t] = low * cosine[t] - high * sine[t];
      x[t + half] = high * cosine[t] + low * sine[t];
    }
  }
};

// Row `row` of the cache, rounded once, to its dtype. e4m3 without a scale: kv_cache.h says why.
void write_cache_row(const Tensor& cache, std::int64_t row, std::int64_t count, const float* values) {
  if (cache.dtype() != DType::kF8E4M3) return write_row(cache, row, 0, count, values);
  F8E4M3* to = cache.row<F8E4M3>(row);
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_f8e4m3(values[i]);
}

}  // namespace

void rope_append(const Stream& stream, const Tensor& qkv, const Tensor& positions, const Tensor& slots,
                 const Rope& rope, KvLayer& kv, const Tensor& q) {
  const std::int64_t rows = q.size(0);
  const std::int64_t heads = q.size(1);
  const std::int64_t head_dim = q.size(2);
  const std::int64_t kv_heads = kv.kv_heads();
  const std::int64_t slots_all = kv.slots();
  CHECK(head_dim <= kHeadDimMax, "head_dim {}", head_dim);
  const Tensor q_rows = q.reshape({rows, heads * head_dim});
  const Tensor keys = kv.keys.reshape({slots_all * kv_heads, head_dim});
  const Tensor values = kv.values.reshape({slots_all * kv_heads, head_dim});
  const auto one_row = [&](std::int64_t r) {
    const std::int32_t slot = slots.as<std::int32_t>()[r];
    CHECK(slot >= 0 && slot < slots_all, "row {} goes to slot {} of {}", r, slot, slots_all);
    const Angles angles(rope, positions.as<std::int32_t>()[r]);
    std::array<float, kHeadDimMax> x;
    for (std::int64_t h = 0; h < heads + kv_heads; ++h) {
      read_row(qkv, r, h * head_dim, head_dim, x.data());
      angles.rotate(x.data(), rope.frequencies.size());
      if (h < heads) {
        for (std::int64_t d = 0; d < head_dim; ++d) x[static_cast<std::size_t>(d)] *= rope.query_factor;
        write_row(q_rows, r, h * head_dim, head_dim, x.data());
      } else {
        write_cache_row(keys, kv.element(slot, h - heads) / head_dim, head_dim, x.data());
      }
    }
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      read_row(qkv, r, (heads + kv_heads + h) * head_dim, head_dim, x.data());
      write_cache_row(values, kv.element(slot, h) / head_dim, head_dim, x.data());
    }
  };
  stream.parallel_for(static_cast<std::size_t>(rows), 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) one_row(static_cast<std::int64_t>(r));
  });
}

}  // namespace rose::ops::ref
