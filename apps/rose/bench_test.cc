#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench_figures.h"
#include "bench_ops_cases.h"
#include "bench_ops_inputs.h"
#include "bench_published.h"
#include "ops/testing/random.h"

namespace rose {
namespace {

TEST(BenchFigures, SpreadIsNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.median, 50);
  EXPECT_EQ(spread.p10, 10);
  EXPECT_EQ(spread.p90, 90);
  EXPECT_EQ(spread.n, 100);
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  const Spread one = spread_of({7});
  EXPECT_EQ(one.p10, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.p90, 7);
}

// The published dollars are rounded to 0.001, and computed from seconds rounded to 0.001.
TEST(BenchFigures, DollarsAreThoseOfThePublishedTable) {
  int cells = 0;
  for (const char* model : {"gpt-oss-20b", "gpt-oss-120b"}) {
    for (const int gpus : {1, 2, 4, 8}) {
      for (const int tokens : {8192, 32768, 65536, 128000}) {
        const auto published = published_prefill(model, gpus, tokens);
        ASSERT_TRUE(published) << model << " " << gpus << " " << tokens;
        const double rounding = 0.0005 + dollars_per_million(tokens, 0.0005, gpus, 3) + 1e-9;
        EXPECT_NEAR(dollars_per_million(tokens, published->seconds, gpus, 3), published->dollars, rounding)
            << model << " " << gpus << " " << tokens;
        ++cells;
      }
    }
  }
  EXPECT_EQ(cells, 32);
  EXPECT_FALSE(published_prefill("gpt-oss-20b", 1, 8191));
  EXPECT_FALSE(published_prefill("gpt-oss-20b", 3, 8192));
  EXPECT_FALSE(published_prefill("", 1, 8192));
}

TEST(BenchFigures, PublishedModelsAreKnownByTheirShape) {
  ModelShape shape;
  shape.layers = 24;
  shape.hidden = 2880;
  shape.experts = 32;
  EXPECT_EQ(published_model(shape), "gpt-oss-20b");
  shape.layers = 36;
  EXPECT_EQ(published_model(shape), "");
  shape.experts = 128;
  EXPECT_EQ(published_model(shape), "gpt-oss-120b");
}

const OpCase& find(const std::vector<OpCase>& cases, const std::string& name) {
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const OpCase& c) { return c.name() == name; });
  EXPECT_NE(found, cases.end()) << name;
  return *found;
}

TEST(OpCases, NamesAreUniqueAndFiltered) {
  const std::vector<OpCase> cases = op_cases();
  std::set<std::string> names;
  for (const OpCase& c : cases) {
    EXPECT_TRUE(names.insert(c.name()).second) << c.name();
    EXPECT_GT(c.bytes, 0) << c.name();
    EXPECT_EQ(c.flops > 0, c.unit != MatrixUnit::kNone) << c.name();
  }
  EXPECT_EQ(op_cases("sample").size(), 4u);
  EXPECT_TRUE(op_cases("no such operation").empty());
}

TEST(OpCases, AttentionCountsVisiblePairs) {
  const std::vector<OpCase> cases = op_cases("attention");
  double full = 0, window = 0;
  for (int i = 0; i < 1024; ++i) {
    for (int j = 0; j <= i; ++j) full += 1, window += i - j < 128 ? 1 : 0;
  }
  const double pair = 4.0 * 64 * 64;  // a product with k and one with v, 64 heads of 64
  EXPECT_DOUBLE_EQ(find(cases, "attention prefill full, 1k").flops, full * pair);
  EXPECT_DOUBLE_EQ(find(cases, "attention prefill window, 1k").flops, window * pair);
  EXPECT_DOUBLE_EQ(find(cases, "attention decode full, 8 x 64k").flops, 8.0 * 65536 * pair);
  EXPECT_DOUBLE_EQ(find(cases, "attention decode full, 8 x 64k").bytes, 8.0 * (65536 * 2048 + 16384));
  EXPECT_DOUBLE_EQ(find(cases, "attention decode window, 8 x 8k").bytes, 8.0 * (128 * 2048 + 16384));
}

// 13,236,480 bytes an expert with its biases, 199.07 MFLOP a token for four of them: counted from the model's shapes.
TEST(OpCases, ExpertsCountWhatARowTouches) {
  const std::vector<OpCase> cases = op_cases("experts of 128");
  const OpCase& one = find(cases, "experts of 128, 1 rows balanced");
  EXPECT_NEAR(one.bytes, 4 * 13236480.0, 20000);
  EXPECT_NEAR(one.flops, 199.07e6, 0.01e6);
  EXPECT_NEAR(find(cases, "experts of 128, 8192 rows balanced").flops, 1.63e12, 0.01e12);
  const double most = 128 * 13236480.0;
  EXPECT_NEAR(find(cases, "experts of 128, 32 rows balanced").bytes, most, 1e6);
  // At random, 128 draws touch 128 (1 - (1 - 4/128)^32) = 81.6 experts, with a deviation below 5; a power law, fewer.
  const double random = find(cases, "experts of 128, 32 rows random").bytes / 13236480.0;
  EXPECT_NEAR(random, 128 * (1 - std::pow(1 - 4.0 / 128, 32)), 20);
  EXPECT_LT(find(cases, "experts of 128, 32 rows skewed").bytes / 13236480.0, random);
}

TEST(OpCases, RowsChooseDistinctExpertsAndCopiesOthers) {
  for (const OpRouting routing : {OpRouting::kBalanced, OpRouting::kRandom, OpRouting::kSkewed}) {
    OpCase c;
    c.rows = 50;
    c.experts = 32;
    c.routing = routing;
    const std::vector<std::int32_t> chosen = chosen_experts(c, 3);
    ASSERT_EQ(chosen.size(), 200u);
    std::vector<int> count(32, 0);
    for (std::size_t r = 0; r < 50; ++r) {
      std::set<std::int32_t> row(chosen.begin() + static_cast<std::ptrdiff_t>(4 * r),
                                 chosen.begin() + static_cast<std::ptrdiff_t>(4 * r + 4));
      EXPECT_EQ(row.size(), 4u);
      for (const std::int32_t e : row) ++count.at(static_cast<std::size_t>(e));
    }
    const auto [fewest, most] = std::minmax_element(count.begin(), count.end());
    if (routing == OpRouting::kBalanced) {
      EXPECT_LE(*most - *fewest, 1);
    } else {
      EXPECT_GT(*most - *fewest, 1);
    }
    EXPECT_NE(chosen, chosen_experts(c, 4));
  }
}

RandomFill host_fill() {
  return {
      .numbers =
          [](const Stream&, const Tensor& to, std::uint64_t seed, float size) {
            for (std::int64_t i = 0; i < to.elements(); ++i) {
              ops::testing::set_element(to, i, ops::testing::random_value(seed, static_cast<std::uint64_t>(i), size));
            }
          },
      .bytes =
          [](const Stream&, const Tensor& to, std::uint64_t seed, int low, int high) {
            for (std::int64_t i = 0; i < to.elements(); ++i) {
              to.as<std::uint8_t>()[i] =
                  static_cast<std::uint8_t>(low + static_cast<int>(random_bits(seed, static_cast<std::uint64_t>(i)) %
                                                                   static_cast<std::uint64_t>(high - low + 1)));
            }
          }};
}

OpCase small(OpKind kind, int rows) {
  OpCase c;
  c.model = {.hidden = 64, .intermediate = 96, .heads = 4, .kv_heads = 2, .window = 16, .vocabulary = 500};
  c.kind = kind;
  c.rows = rows;
  c.context = rows;
  c.experts = 8;
  c.out = 96;
  c.in = 64;
  c.bytes = 1000;
  return c;
}

// Every copy's launch passes the operation's own checks (the attention's look at the page tables' contents), and writes
// all of its outputs.
TEST(OpInputs, EveryOperationRunsAndWritesItsOutputs) {
  std::vector<OpCase> cases;
  for (const OpKind kind : {OpKind::kExperts, OpKind::kLinear, OpKind::kNorm, OpKind::kRopeAppend, OpKind::kRoute,
                            OpKind::kSample, OpKind::kEmbed}) {
    for (const int rows : {1, 37}) cases.push_back(small(kind, rows));
  }
  OpCase logits = small(OpKind::kLinear, 3);
  logits.out = logits.model.vocabulary;
  cases.push_back(logits);
  for (const OpRouting routing : {OpRouting::kRandom, OpRouting::kSkewed}) {
    OpCase c = small(OpKind::kExperts, 5);
    c.routing = routing;
    cases.push_back(c);
  }
  for (const int window : {0, 16}) {
    for (const int sequences : {1, 3}) {
      for (const int rows_each : {1, 40}) {
        OpCase c = small(OpKind::kAttention, sequences * rows_each);
        c.sequences = sequences;
        c.context = 100;
        c.window = window;
        cases.push_back(c);
      }
    }
  }
  for (const OpCase& c : cases) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(c.kind) << ", rows " << c.rows << ", sequences "
                                    << c.sequences << ", window " << c.window);
    const PreparedOp op = prepare_op(c, Stream::cpu(1), host_fill(), 3000);
    EXPECT_EQ(op.copies, c.kind == OpKind::kExperts && c.rows > 1 ? 1 : 3);
    EXPECT_GT(bad_numbers(op), 0);
    for (int i = 0; i < op.copies; ++i) op.launch(i);
    EXPECT_EQ(bad_numbers(op), 0);
  }
}

}  // namespace
}  // namespace rose
