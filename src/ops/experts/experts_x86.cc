#include "ops/experts/experts_x86.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "ops/linear/linear_x86.h"
#include "ops/parallel.h"
#include "ops/rows.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/experts/experts_x86.cc"
// foreach_target.h comes before everything that is compiled once per target.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace rose::ops::x86::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Comparisons, not Min and Max: a NaN must come out as a NaN, so that the row fails rather than continue with 7.
void swiglu_group(const float* u, float limit, float* out) {
  const hn::CappedTag<float, 16> d;
  const auto high = hn::Set(d, limit);
  const auto low = hn::Set(d, -limit);
  const auto one = hn::Set(d, 1.0f);
  for (std::int64_t j = 0; j < kGroup; j += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Vec<decltype(d)> gate;
    hn::Vec<decltype(d)> up;
    hn::LoadInterleaved2(d, u + 2 * j, gate, up);
    gate = hn::IfThenElse(hn::Gt(gate, high), high, gate);
    up = hn::IfThenElse(hn::Gt(up, high), high, hn::IfThenElse(hn::Lt(up, low), low, up));
    // Beyond 88 exp overflows a float; sigmoid is 6e-39 there already.
    const auto exponent = hn::Min(hn::Mul(gate, hn::Set(d, -kSwigluAlpha)), hn::Set(d, 88.0f));
    const auto sigmoid = hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
    hn::StoreU(hn::Mul(hn::Mul(gate, sigmoid), hn::Add(up, one)), d, out + j);
  }
}

}  // namespace rose::ops::x86::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::ops::x86 {

HWY_EXPORT(swiglu_group);

void swiglu_group(const float* u, float limit, float* out) { HWY_DYNAMIC_DISPATCH(swiglu_group)(u, limit, out); }

namespace {

// The (row, k) pairs of each expert held here: pairs[begin[e]] .. pairs[begin[e + 1]], ascending.
struct Groups {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> pairs;

  void fill(const Routing& routing, std::int64_t first_expert, std::int64_t held) {
    const std::int64_t per_token = routing.experts.size(1);
    const std::int64_t count = routing.experts.size(0) * per_token;
    const auto expert_of = [&](std::int64_t pair) {
      const std::int64_t expert = routing.experts.row<std::int32_t>(pair / per_token)[pair % per_token] - first_expert;
      return expert >= 0 && expert < held ? expert : -1;
    };
    begin.assign(static_cast<std::size_t>(held) + 2, 0);
    pairs.resize(static_cast<std::size_t>(count));
    for (std::int64_t pair = 0; pair < count; ++pair) {
      if (expert_of(pair) >= 0) ++begin[static_cast<std::size_t>(expert_of(pair)) + 2];
    }
    for (std::size_t e = 2; e < begin.size(); ++e) begin[e] += begin[e - 1];
    for (std::int64_t pair = 0; pair < count; ++pair) {
      const std::int64_t expert = expert_of(pair);
      if (expert >= 0) pairs[static_cast<std::size_t>(begin[static_cast<std::size_t>(expert) + 1]++)] = pair;
    }
  }
};

struct Run {
  const Tensor& x;
  const Routing& routing;
  const ExpertWeights& weights;
  float limit;
  const Tensor& y;
  const Groups& groups;
  std::int64_t rows, per_token, hidden, intermediate, x_stride, a_stride;
  float* packed;       // [rows, x_stride]
  float* activations;  // [rows * per_token, a_stride], packed for down
  float* results;      // [rows * per_token, hidden], unweighted

  // body(expert, pairs, count) for at most kRowsMax pairs at a time, experts in order.
  template <class Body>
  void for_each_batch(const Body& body) const {
    for (std::int64_t e = 0; e < weights.gate_up.experts; ++e) {
      const std::int64_t end = groups.begin[static_cast<std::size_t>(e) + 1];
      for (std::int64_t p = groups.begin[static_cast<std::size_t>(e)]; p < end; p += kRowsMax) {
        body(e, groups.pairs.data() + p, std::min(kRowsMax, end - p));
      }
    }
  }

  // Outputs [64 piece, 64 piece + 64) of gate_up: one group of 32 activations of every pair.
  void gate_up(std::int64_t piece) const {
    const Weight& weight = weights.gate_up;
    const std::int64_t begin = piece * kOutsMax;
    const std::int64_t count = std::min(kOutsMax, weight.out - begin);
    alignas(64) float sums[kRowsMax * kOutsMax];
    for_each_batch([&](std::int64_t expert, const std::int64_t* pairs, std::int64_t pair_count) {
      const float* pointers[kRowsMax];
      for (std::int64_t p = 0; p < pair_count; ++p) pointers[p] = packed + pairs[p] / per_token * x_stride;
      dot_block({&weight, expert, begin, begin + count, pointers, pair_count}, sums);
      const auto* bias = static_cast<const Bf16*>(weight.bias.raw());
      if (bias != nullptr) bias += expert * weight.out + begin;
      for (std::int64_t p = 0; p < pair_count; ++p) {
        float* u = sums + p * kOutsMax;
        if (bias != nullptr) {
          for (std::int64_t o = 0; o < count; ++o) u[o] += to_float(bias[o]);
        }
        std::fill(u + count, u + kOutsMax, 0.0f);  // beyond the last output: zero activations
        float a[kGroup];
        swiglu_group(u, limit, a);
        pack_group(weights.down.format, a, activations + pairs[p] * a_stride + piece * kGroup);
      }
    });
  }

  // Outputs [64 piece, ...) of down for every pair, then the weighted sum of each row over its experts, in routing
  // order.
  void down(std::int64_t piece) const {
    const Weight& weight = weights.down;
    const std::int64_t begin = piece * kOutsMax;
    const std::int64_t count = std::min(kOutsMax, hidden - begin);
    alignas(64) float sums[kRowsMax * kOutsMax];
    for_each_batch([&](std::int64_t expert, const std::int64_t* pairs, std::int64_t pair_count) {
      const float* pointers[kRowsMax];
      for (std::int64_t p = 0; p < pair_count; ++p) pointers[p] = activations + pairs[p] * a_stride;
      dot_block({&weight, expert, begin, begin + count, pointers, pair_count}, sums);
      const auto* bias = static_cast<const Bf16*>(weight.bias.raw());
      if (bias != nullptr) bias += expert * weight.out + begin;
      for (std::int64_t p = 0; p < pair_count; ++p) {
        float* result = results + pairs[p] * hidden + begin;
        for (std::int64_t o = 0; o < count; ++o) {
          result[o] = sums[p * kOutsMax + o] + (bias != nullptr ? to_float(bias[o]) : 0.0f);
        }
      }
    });
    for (std::int64_t r = 0; r < rows; ++r) combine(r, begin, count);
  }

  void combine(std::int64_t row, std::int64_t begin, std::int64_t count) const {
    float sum[kOutsMax] = {};
    for (std::int64_t k = 0; k < per_token; ++k) {
      const std::int64_t expert = routing.experts.row<std::int32_t>(row)[k] - weights.first_expert;
      if (expert < 0 || expert >= weights.down.experts) continue;
      const float w = routing.weights.row<float>(row)[k];
      const float* result = results + (row * per_token + k) * hidden + begin;
      for (std::int64_t o = 0; o < count; ++o) sum[o] += w * result[o];
    }
    write_row(y, row, begin, count, sum);
  }
};

}  // namespace

void experts(const Stream& stream, const Tensor& x, const Routing& routing, const ExpertWeights& weights,
             float swiglu_limit, const Tensor& scratch, const Tensor& y) {
  const std::int64_t rows = x.size(0);
  if (rows == 0) return;
  thread_local Groups groups;
  groups.fill(routing, weights.first_expert, weights.gate_up.experts);
  const Groups& filled = groups;  // by reference into other threads: their own thread_local would be empty

  const std::int64_t per_token = routing.experts.size(1);
  const std::int64_t hidden = x.size(1);
  const std::int64_t intermediate = weights.down.in;
  const std::int64_t x_stride = packed_stride(hidden);
  const std::int64_t a_stride = packed_stride(intermediate);
  float* packed = scratch.as<float>();
  CHECK(reinterpret_cast<std::uintptr_t>(packed) % 64 == 0, "experts: scratch is not aligned to 64 bytes");
  float* activations = packed + rows * x_stride;
  float* results = activations + rows * per_token * a_stride;
  const Run run{x,      routing,      weights,  swiglu_limit, y,      filled,      rows,   per_token,
                hidden, intermediate, x_stride, a_stride,     packed, activations, results};

  for_each_piece(stream, rows, [&](std::int64_t r) { pack_row(weights.gate_up.format, x, r, packed + r * x_stride); });
  for_each_piece(stream, (weights.gate_up.out + kOutsMax - 1) / kOutsMax,
                 [&](std::int64_t piece) { run.gate_up(piece); });
  for_each_piece(stream, (hidden + kOutsMax - 1) / kOutsMax, [&](std::int64_t piece) { run.down(piece); });
}

}  // namespace rose::ops::x86
#endif  // HWY_ONCE
