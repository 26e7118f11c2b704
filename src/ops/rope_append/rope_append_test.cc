#include "ops/rope_append/rope_append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "ops/testing/compare.h"
#include "ops/testing/random.h"

namespace rose::ops {
namespace {

using testing::OwnedTensor;

TEST(Rope, FrequenciesAndConcentrationArePublishedOnes) {
  constexpr double kWant[32] = {1,
                                0.689044306,
                                0.474782055,
                                0.327145872,
                                0.225418,
                                0.155322989,
                                0.107024421,
                                0.0737445682,
                                0.0508132748,
                                0.0317056962,
                                0.0193350011,
                                0.0115920493,
                                0.00679495949,
                                0.00386035932,
                                0.00209379238,
                                0.0010526021,
                                0.000456483919,
                                0.000129318701,
                                3.83088124e-05,
                                2.6396469e-05,
                                1.81883367e-05,
                                1.25325698e-05,
                                8.63549588e-06,
                                5.95023926e-06,
                                4.09997848e-06,
                                2.82506683e-06,
                                1.94659621e-06,
                                1.34129104e-06,
                                9.2420895e-07,
                                6.36820915e-07,
                                4.38797825e-07,
                                3.02351143e-07};
  const Rope rope{RopeConfig{}};
  ASSERT_EQ(rope.frequencies.size(), 32u);
  // Half an ulp of a float and half a unit of the ninth printed digit.
  for (std::size_t t = 0; t < 32; ++t)
    EXPECT_NEAR(static_cast<double>(rope.frequencies[t]), kWant[t], 7e-8 * kWant[t]) << t;
  EXPECT_NEAR(static_cast<double>(rope.concentration), 1.3465735902799727, 1e-7);
}

TEST(Rope, TruncatedBoundsBendOnlyTheMiddle) {
  const Rope real{RopeConfig{}};
  const Rope truncated{RopeConfig{.truncate = true}};
  for (std::size_t t = 0; t < 32; ++t) {
    EXPECT_EQ(real.frequencies[t] != truncated.frequencies[t], t >= 9 && t <= 17) << t;
  }
}

TEST(Rope, FactorOneIsPlainRope) {
  const Rope rope{RopeConfig{.head_dim = 8, .theta = 10000, .factor = 1}};
  for (std::size_t t = 0; t < 4; ++t)
    EXPECT_FLOAT_EQ(rope.frequencies[t], std::pow(10000.0f, -static_cast<float>(t) / 4));
  EXPECT_EQ(rope.concentration, 1.0f);
}

struct Scene {
  static constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 64, kPageSize = 4, kPages = 3;
  OwnedTensor qkv, keys, values, q, positions, slots;
  KvLayer kv;
  Rope rope{RopeConfig{}};

  Scene(DType activations, DType cache, const std::vector<std::int32_t>& at, const std::vector<std::int32_t>& to) {
    const auto rows = static_cast<std::int64_t>(at.size());
    qkv = testing::random_tensor(activations, {rows, (kHeads + 2 * kKvHeads) * kDim}, 1, 3);
    keys = OwnedTensor(cache, {kPages, kKvHeads, kPageSize, kDim});
    values = OwnedTensor(cache, {kPages, kKvHeads, kPageSize, kDim});
    q = OwnedTensor(activations, {rows, kHeads, kDim});
    positions = testing::int_tensor(at);
    slots = testing::int_tensor(to);
    kv = {*keys, *values, kPageSize};
    rope_append(Stream::cpu(2), *qkv, *positions, *slots, rope, kv, *q);
  }
  // Where dim `dim` of KV head `head` lies in a slot: written out here, so that KvLayer::element is tested too.
  static std::int64_t cached(std::int64_t slot, std::int64_t head, std::int64_t dim) {
    return ((slot / kPageSize * kKvHeads + head) * kPageSize + slot % kPageSize) * kDim + dim;
  }
  double in(std::int64_t row, std::int64_t head, std::int64_t dim) const {
    return testing::element(*qkv, (row * (kHeads + 2 * kKvHeads) + head) * kDim + dim);
  }
  // Head `head` of row `row` rotated: pairs (t, t + 32).
  double rotated(std::int64_t row, std::int64_t head, std::int64_t dim) const {
    const auto t = static_cast<std::size_t>(dim % 32);
    const double angle =
        static_cast<double>(static_cast<float>(positions->as<std::int32_t>()[row]) * rope.frequencies[t]);
    const double m = 1.3465735902799727;
    const double low = in(row, head, dim % 32);
    const double high = in(row, head, dim % 32 + 32);
    return dim < 32 ? m * (low * std::cos(angle) - high * std::sin(angle))
                    : m * (high * std::cos(angle) + low * std::sin(angle));
  }
};

TEST(RopeAppend, RotatesHalfSplitPairsUpToTheLastPosition) {
  const std::vector<std::int32_t> at = {0, 1, 127, 128, 129, 4095, 4097, 131071};
  const std::vector<std::int32_t> to = {0, 5, 11, 4, 3, 7, 8, 1};
  for (const DType cache : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    const Scene scene(DType::kF32, cache, at, to);
    const double half_cached = cache == DType::kF32 ? 0x1p-24 : cache == DType::kBf16 ? 0x1p-8 : 0x1p-4;
    const double subnormal = cache == DType::kF8E4M3 ? 0x1p-10 : 0;  // half a step of the smallest numbers
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(at.size()); ++r) {
      for (std::int64_t h = 0; h < Scene::kHeads + Scene::kKvHeads; ++h) {
        for (std::int64_t d = 0; d < 64; ++d) {
          const double want = scene.rotated(r, h, d);
          const bool is_q = h < Scene::kHeads;
          const double got =
              is_q
                  ? testing::element(*scene.q, (r * Scene::kHeads + h) * 64 + d)
                  : testing::element(*scene.keys, Scene::cached(to[static_cast<std::size_t>(r)], h - Scene::kHeads, d));
          const double half_ulp = is_q ? 0x1p-24 : half_cached;
          // Two products of size up to 3 m with cos and sin rounded, one sum.
          EXPECT_NEAR(got, want, 5 * 3 * 1.35 * 0x1p-24 + (is_q ? 0 : subnormal) + 1.01 * half_ulp * std::fabs(want))
              << r << " " << h << " " << d;
        }
      }
    }
  }
}

// Rotation depends on the difference of positions alone: q . k is the same anywhere, times the concentration squared.
TEST(RopeAppend, ScoresDependOnTheDistanceOfPositions) {
  const Scene near(DType::kF32, DType::kF32, {3, 10}, {0, 1});
  const Scene far(DType::kF32, DType::kF32, {1003, 1010}, {0, 1});
  const auto score = [](const Scene& scene) {  // q of row 1 with k of row 0; qkv holds the same in both scenes
    double dot = 0;
    for (std::int64_t d = 0; d < 64; ++d)
      dot += testing::element(*scene.q, Scene::kHeads * 64 + d) * testing::element(*scene.keys, d);
    return dot;
  };
  // Angles are f32 products: at position 1010 each errs by up to 3e-5 rad, times 64 products of size 16.
  EXPECT_NEAR(score(near), score(far), 64 * 16 * 2 * 3.1e-5);
}

TEST(RopeAppend, TheQueryFactorIsOnQueriesAlone) {
  const Scene plain(DType::kF32, DType::kF32, {3, 10}, {0, 1});
  Scene scaled(DType::kF32, DType::kF32, {3, 10}, {0, 1});
  scaled.rope.query_factor = 0.25f;  // exact
  rope_append(Stream::cpu(2), *scaled.qkv, *scaled.positions, *scaled.slots, scaled.rope, scaled.kv, *scaled.q);
  for (std::int64_t i = 0; i < 2 * Scene::kHeads * 64; ++i)
    ASSERT_EQ(testing::element(*scaled.q, i), testing::element(*plain.q, i) / 4) << i;
  for (std::int64_t i = 0; i < Scene::kKvHeads * 64; ++i)
    ASSERT_EQ(testing::element(*scaled.keys, Scene::cached(1, i / 64, i % 64)),
              testing::element(*plain.keys, Scene::cached(1, i / 64, i % 64)))
        << i;
}

TEST(RopeAppend, ValuesAreCopiedAndOtherSlotsStayUntouched) {
  const Scene scene(DType::kF32, DType::kBf16, {7, 8}, {2, 9});
  for (std::int64_t slot = 0; slot < Scene::kPages * Scene::kPageSize; ++slot) {
    for (std::int64_t i = 0; i < Scene::kKvHeads * 64; ++i) {
      const std::int64_t at = Scene::cached(slot, i / 64, i % 64);
      const double got = testing::element(*scene.values, at);
      if (slot != 2 && slot != 9) {
        ASSERT_TRUE(std::isnan(got)) << slot;
        ASSERT_TRUE(std::isnan(testing::element(*scene.keys, at))) << slot;
        continue;
      }
      const double want = scene.in(slot == 2 ? 0 : 1, Scene::kHeads + Scene::kKvHeads + i / 64, i % 64);
      ASSERT_EQ(got, static_cast<double>(to_float(to_bf16(static_cast<float>(want))))) << slot << " " << i;
    }
  }
}

// e4m3 as dtype.h rounds it, whose conversions have tests of their own: saturation and NaN included.
TEST(RopeAppend, E4m3HoldsTheNearestValueAndSaturates) {
  Scene scene(DType::kF32, DType::kF8E4M3, {7, 0}, {2, 9});
  const std::int64_t values = (Scene::kHeads + Scene::kKvHeads) * 64;
  float* row = scene.qkv->row<float>(1);
  for (int i = 0; i < 2 * 64; ++i) row[values + i] = std::ldexp(row[values + i], i % 24 - 12);
  row[values] = 449, row[values + 1] = -1e30f, row[values + 2] = HUGE_VALF, row[values + 3] = std::nanf("");
  row[Scene::kHeads * 64] = 400, row[Scene::kHeads * 64 + 1] = -400;  // position 0: times 1.35 alone
  rope_append(Stream::cpu(2), *scene.qkv, *scene.positions, *scene.slots, scene.rope, scene.kv, *scene.q);
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t i = 0; i < Scene::kKvHeads * 64; ++i) {
      const F8E4M3 got = scene.values->as<F8E4M3>()[Scene::cached(r == 0 ? 2 : 9, i / 64, i % 64)];
      ASSERT_EQ(got.bits,
                to_f8e4m3(static_cast<float>(scene.in(r, Scene::kHeads + Scene::kKvHeads + i / 64, i % 64))).bits)
          << r << " " << i;
    }
  }
  const F8E4M3* cached = scene.values->as<F8E4M3>() + Scene::cached(9, 0, 0);
  EXPECT_EQ(cached[0].bits, 0x7e);
  EXPECT_EQ(cached[1].bits, 0xfe);
  EXPECT_EQ(cached[2].bits, 0x7e);
  EXPECT_TRUE(std::isnan(to_float(cached[3])));
  EXPECT_EQ(scene.keys->as<F8E4M3>()[Scene::cached(9, 0, 0)].bits, 0x7e);
  EXPECT_EQ(scene.keys->as<F8E4M3>()[Scene::cached(9, 0, 1)].bits, 0xfe);
}

TEST(RopeAppend, NoRowsIsNothingToDo) { const Scene scene(DType::kF32, DType::kBf16, {}, {}); }

TEST(RopeAppendDeathTest, ASlotOutsideTheCacheIsCaught) {
  EXPECT_DEATH(Scene(DType::kF32, DType::kBf16, {0}, {12}), "slot 12 of 12");
}

}  // namespace
}  // namespace rose::ops
