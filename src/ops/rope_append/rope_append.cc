#include "ops/rope_append/rope_append.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/check.h"
#include "ops/rope_append/rope_append_cuda.h"

namespace rose::ops {

Rope::Rope(const RopeConfig& config) {
  CHECK(config.head_dim > 0 && config.head_dim % 2 == 0, "rope: head_dim {}", config.head_dim);
  CHECK(config.theta > 1 && config.factor >= 1 && config.original_positions > 0,
        "rope: theta {}, factor {}, {} positions", config.theta, config.factor, config.original_positions);
  const double dim = config.head_dim;
  // The pair whose wavelength turns `turns` times within the original positions.
  const auto pair_of = [&](double turns) {
    return dim / 2 * std::log(config.original_positions / (turns * 2 * std::numbers::pi)) / std::log(config.theta);
  };
  double low = pair_of(config.beta_fast);
  double high = pair_of(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // a step, not a division by zero
  for (int t = 0; t < config.head_dim / 2; ++t) {
    const double plain = std::pow(config.theta, -2.0 * t / dim);
    const double ramp = std::clamp((t - low) / (high - low), 0.0, 1.0);
    frequencies.push_back(static_cast<float>(plain * (1 - ramp) + plain / config.factor * ramp));
  }
  concentration = config.factor > 1 ? static_cast<float>(0.1 * std::log(config.factor) + 1) : 1.0f;
}

void rope_append(const Stream& stream, const Tensor& qkv, const Tensor& positions, const Tensor& slots,
                 const Rope& rope, KvLayer& kv, const Tensor& q) {
  const auto head_dim = static_cast<std::int64_t>(rope.frequencies.size()) * 2;
  check_tensor(stream, "rope_append: q", q, {DType::kF32, DType::kBf16}, {-1, -1, head_dim});
  const std::int64_t rows = q.size(0);
  check_tensor(stream, "rope_append: keys", kv.keys, {DType::kBf16, DType::kF32, DType::kF8E4M3},
               {-1, -1, kv.page_size, head_dim});
  check_tensor(stream, "rope_append: values", kv.values, {kv.keys.dtype()},
               {kv.keys.size(0), kv.kv_heads(), kv.page_size, head_dim});
  CHECK(q.contiguous() && kv.keys.contiguous() && kv.values.contiguous(),
        "rope_append: q or the cache is not contiguous");
  check_activations(stream, "rope_append: qkv", qkv, rows, (q.size(1) + 2 * kv.kv_heads()) * head_dim);
  check_tensor(stream, "rope_append: positions", positions, {DType::kI32}, {rows});
  check_tensor(stream, "rope_append: slots", slots, {DType::kI32}, {rows});
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::rope_append(stream, qkv, positions, slots, rope, kv, q);
      return;
    case DeviceKind::kCuda:
      cuda::rope_append(stream, qkv, positions, slots, rope, kv, q);
      return;
  }
}

}  // namespace rose::ops
