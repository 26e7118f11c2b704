// Slices: the ranks of a plan hold every element, and none twice, except what is copied on purpose.
#include "weights/spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/arena.h"
#include "weights/testing/checkpoint.h"

namespace rose {
namespace {

struct Case {
  std::string name;
  synthetic::Shape shape;
  ParallelPlan plan;
};

synthetic::Shape tiny_a() { return {.layers = 1, .hidden = 192, .intermediate = 320, .experts = 16}; }
synthetic::Shape tiny_b() {
  return {.layers = 1, .hidden = 832, .intermediate = 960, .experts = 32, .heads = 64, .kv_heads = 8};
}
synthetic::Shape published() {
  return {
      .layers = 1, .hidden = 2880, .intermediate = 2880, .experts = 32, .heads = 64, .kv_heads = 8, .vocabulary = 1088};
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto& [name, shape, tp_max] :
       {std::tuple{"tiny_a", tiny_a(), 2}, {"tiny_b", tiny_b(), 8}, {"published", published(), 8}}) {
    for (int tp = 1; tp <= tp_max; tp *= 2) {
      for (int dp = 1; dp <= 2; ++dp) {
        for (int ep = 1; ep <= dp * tp; ep *= 2) {
          if (dp * tp / ep > 8) continue;  // 30 groups leave some of 16 sharers nothing
          list.push_back({fmt::format("{}_dp{}_tp{}_ep{}", name, dp, tp, ep), shape, {.dp = dp, .tp = tp, .ep = ep}});
        }
      }
    }
  }
  return list;
}

class Slices : public ::testing::TestWithParam<Case> {};

// Counts by (expert, row, group of 32 columns).
TEST_P(Slices, CoverEveryWeightOnce) {
  const auto& [name, shape, plan] = GetParam();
  for (const WeightSpec& spec : synthetic::specs(shape)) {
    const std::int64_t unit = spec.in == 1 ? 1 : 32;
    const std::int64_t groups = spec.in / unit;
    const std::int64_t experts = std::max<std::int64_t>(1, spec.experts);
    std::vector<int> held(static_cast<std::size_t>(experts * spec.out * groups));
    int bias_holders = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const WeightSlice slice = slice_of(spec, plan, rank);
      bias_holders += slice.holds_bias;
      ASSERT_EQ(slice.columns.begin % unit, 0);
      ASSERT_EQ(slice.columns.size() % unit, 0);
      ASSERT_EQ(slice.rows.size(), spec.parts.size());
      const std::int64_t e_end = spec.experts == 0 ? 1 : slice.experts.end;
      std::int64_t part_begin = 0;
      for (std::size_t p = 0; p < spec.parts.size(); ++p) {
        for (std::int64_t e = slice.experts.begin; e < e_end; ++e) {
          for (std::int64_t row = slice.rows[p].begin; row < slice.rows[p].end; ++row) {
            for (std::int64_t g = slice.columns.begin / unit; g < slice.columns.end / unit; ++g) {
              ++held[static_cast<std::size_t>((e * spec.out + part_begin + row) * groups + g)];
            }
          }
        }
        part_begin += spec.parts[p].rows;
      }
    }
    const bool experts_cut = spec.kind == WeightKind::kExperts;
    const bool tp_cut = spec.shard == Shard::kRows || spec.shard == Shard::kColumns;
    const int expected = experts_cut ? 1 : tp_cut ? plan.dp : plan.ranks();
    for (const int count : held) ASSERT_EQ(count, expected) << spec.name;
    // A bias that every rank added would count several times in the sum over ranks.
    if (spec.shard == Shard::kColumns) {
      EXPECT_EQ(bias_holders, plan.dp);
    }
    if (spec.shard == Shard::kExpertColumns) {
      EXPECT_EQ(bias_holders, plan.ep);
    }
    if (!spec.bias) {
      EXPECT_EQ(bias_holders, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Slices, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& param) { return param.param.name; });

std::vector<std::int64_t> widths(const WeightSpec& spec, const ParallelPlan& plan) {
  std::vector<std::int64_t> list;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const WeightSlice slice = slice_of(spec, plan, rank);
    list.push_back(spec.shard == Shard::kExpertRows ? slice.out() : slice.columns.size());
  }
  return list;
}

// 32-column groups a rank: ceil(groups / tp), the last ranks have what is left.
TEST(Slices, ExpertWidthsAreThePublishedOnes) {
  const auto down = [](std::int64_t width) {
    return WeightSpec{.name = "down",
                      .kind = WeightKind::kExperts,
                      .experts = 8,
                      .out = 64,
                      .in = width,
                      .shard = Shard::kExpertColumns,
                      .parts = {{"down", 64}}};
  };
  using Widths = std::vector<std::int64_t>;
  EXPECT_EQ(widths(down(320), {.tp = 4}), (Widths{96, 96, 96, 32}));
  EXPECT_EQ(widths(down(320), {.tp = 2}), (Widths{160, 160}));
  EXPECT_EQ(widths(down(960), {.tp = 8}), (Widths{128, 128, 128, 128, 128, 128, 128, 64}));
  EXPECT_EQ(widths(down(960), {.tp = 4}), (Widths{256, 256, 256, 192}));
  EXPECT_EQ(widths(down(2880), {.tp = 2}), (Widths{1440, 1440}));
  EXPECT_EQ(widths(down(2880), {.tp = 4}), (Widths{736, 736, 736, 672}));
  EXPECT_EQ(widths(down(2880), {.tp = 8}), (Widths{384, 384, 384, 384, 384, 384, 384, 192}));
  EXPECT_EQ(widths(down(2880), {.tp = 4, .ep = 2}), (Widths{1440, 1440, 1440, 1440}));
}

TEST(WeightFormats, DenseIsForTheMatricesThatSaySo) {
  const WeightSpec plain{.name = "router", .out = 200, .in = 320, .bias = true, .parts = {{"router", 200}}};
  WeightSpec dense = plain;
  dense.dense = true;
  WeightSpec vector = dense;
  vector.kind = WeightKind::kVector;
  WeightSpec experts = dense;
  experts.kind = WeightKind::kExperts;
  const WeightFormats formats{WeightFormat::kMxfp4, WeightFormat::kFp8};
  EXPECT_EQ(formats.of(plain), WeightFormat::kBf16);
  EXPECT_EQ(formats.of(dense), WeightFormat::kFp8);
  EXPECT_EQ(formats.of(vector), WeightFormat::kBf16);
  EXPECT_EQ(formats.of(experts), WeightFormat::kMxfp4);
  EXPECT_EQ(WeightFormats(WeightFormat::kFp8).of(dense), WeightFormat::kBf16);

  const WeightSlice slice = slice_of(dense, {.tp = 2}, 1);
  const std::size_t bytes = slice_bytes(dense, slice, formats);
  EXPECT_EQ(bytes, 200u * 320 + 256 + 512);  // 2 x 3 scales; 200 biases: each at a multiple of 256
  Arena arena({}, bytes, "arena");
  const Weight weight = allocate_weight(dense, slice, formats, arena);
  EXPECT_EQ(arena.bytes_used(), bytes);
  EXPECT_EQ(weight.format, WeightFormat::kFp8);
  EXPECT_EQ(weight.scales.size(0), 2);
  EXPECT_EQ(weight.scales.size(1), 3);
}

TEST(Slices, GateUpRowsBelongToTheDownColumnsOfTheSameRank) {
  for (const int ep : {1, 2, 4}) {
    const ParallelPlan plan{.tp = 4, .ep = ep};
    const std::vector<WeightSpec> specs = synthetic::specs(tiny_a());
    for (int rank = 0; rank < 4; ++rank) {
      WeightSlice gate_up, down;
      for (const WeightSpec& spec : specs) {
        if (spec.shard == Shard::kExpertRows) gate_up = slice_of(spec, plan, rank);
        if (spec.shard == Shard::kExpertColumns) down = slice_of(spec, plan, rank);
      }
      EXPECT_EQ(gate_up.rows[0].begin, 2 * down.columns.begin);
      EXPECT_EQ(gate_up.rows[0].end, 2 * down.columns.end);
      EXPECT_EQ(gate_up.experts.begin, down.experts.begin);
      EXPECT_EQ(gate_up.experts.end, down.experts.end);
    }
  }
}

TEST(Slices, EveryRankHoldsWholeHeadsOfQueryKeyAndValue) {
  const std::vector<WeightSpec> specs = synthetic::specs(published());
  for (const WeightSpec& spec : specs) {
    if (spec.parts.size() != 3) continue;
    const WeightSlice slice = slice_of(spec, {.tp = 8}, 3);
    EXPECT_EQ(slice.rows[0].begin, 3 * 512);
    EXPECT_EQ(slice.rows[0].end, 4 * 512);
    EXPECT_EQ(slice.rows[1].begin, 3 * 64);
    EXPECT_EQ(slice.rows[2].end, 4 * 64);
    EXPECT_EQ(slice.out(), 512 + 64 + 64);
  }
}

TEST(Slices, ARankWithoutAnythingIsRefusedWithTheArithmetic) {
  const WeightSpec spec{.name = "down",
                        .kind = WeightKind::kExperts,
                        .experts = 8,
                        .out = 64,
                        .in = 320,
                        .shard = Shard::kExpertColumns,
                        .parts = {{"down", 64}}};
  try {
    slice_of(spec, {.tp = 8}, 7);  // 10 groups, 2 a rank: ranks 5 to 7 have none
    FAIL() << "no error";
  } catch (const StartError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 7"), std::string::npos) << error.what();
  }
}

TEST(Slices, BytesAreAlignedSumsOfPayloadScalesAndBias) {
  const WeightSpec spec{.name = "gate_up",
                        .kind = WeightKind::kExperts,
                        .experts = 4,
                        .out = 640,
                        .in = 192,
                        .bias = true,
                        .shard = Shard::kExpertRows,
                        .parts = {{"gate_up", 640}}};
  const WeightSlice slice = slice_of(spec, {.tp = 4, .ep = 1}, 0);  // 192 rows
  EXPECT_EQ(slice_bytes(spec, slice, WeightFormat::kMxfp4),
            Arena::aligned(4 * 192 * 96) + Arena::aligned(4 * 192 * 6) + Arena::aligned(4 * 192 * 2));
  EXPECT_EQ(slice_bytes(spec, slice, WeightFormat::kFp8),
            Arena::aligned(4 * 192 * 192) + Arena::aligned(4 * 2 * 2 * 4) + Arena::aligned(4 * 192 * 2));
  EXPECT_EQ(slice_bytes(spec, slice, WeightFormat::kBf16),
            Arena::aligned(4 * 192 * 192 * 2) + Arena::aligned(4 * 192 * 2));
}

}  // namespace
}  // namespace rose
