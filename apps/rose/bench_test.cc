#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
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
  EXPECT_EQ(op_cases({"sample"}).size(), 4u);
  EXPECT_EQ(op_cases({"sample", "embed, "}).size(), 4 + op_cases({"embed, "}).size());
  EXPECT_EQ(op_cases({"sample", "sample, 8 rows"}).size(), 4u);
  EXPECT_TRUE(op_cases({"no such operation"}).empty());
}

TEST(OpCases, AttentionCountsVisiblePairs) {
  const std::vector<OpCase> cases = op_cases({"attention"});
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

// Half the bytes of keys and values; queries, outputs and products stay bf16.
TEST(OpCases, Fp8KvHalvesKeysAndValuesAlone) {
  const std::vector<OpCase> cases = op_cases();
  const OpCase& decode = find(cases, "attention decode full fp8 KV, 8 x 64k");
  EXPECT_DOUBLE_EQ(decode.bytes, 8.0 * (65536 * 1024 + 16384));
  EXPECT_DOUBLE_EQ(decode.flops, find(cases, "attention decode full, 8 x 64k").flops);
  EXPECT_EQ(decode.unit, MatrixUnit::kBf16);
  EXPECT_DOUBLE_EQ(find(cases, "attention decode window fp8 KV, 8 x 8k").bytes, 8.0 * (128 * 1024 + 16384));
  EXPECT_DOUBLE_EQ(find(cases, "attention chunk full fp8 KV, 8k of 128k").bytes, 131072 * 1024.0 + 8192 * 16384.0);
  // A row: 80 heads of 64 in bf16 read, 64 written; 8 keys and 8 values of 64; position and slot.
  EXPECT_DOUBLE_EQ(find(cases, "rope and append, 32 rows").bytes, 32.0 * (10240 + 8192 + 2048 + 8));
  EXPECT_DOUBLE_EQ(find(cases, "rope and append fp8 KV, 32 rows").bytes, 32.0 * (10240 + 8192 + 1024 + 8));
  // A page: 32 positions, 8 heads of 64, keys and values; read and written, and 8 bytes of its pair.
  EXPECT_DOUBLE_EQ(find(cases, "copy pages, 32 pages of 32").bytes, 32.0 * (2 * 65536 + 8));
  EXPECT_DOUBLE_EQ(find(cases, "copy pages fp8 KV, 32 pages of 32").bytes, 32.0 * (2 * 32768 + 8));
}

// Weights of one byte with a scale of four bytes for a tile of 128 x 128, x and y in bf16, logits in f32.
TEST(OpCases, Fp8LinearCountsWeightsAndScales) {
  const std::vector<OpCase> cases = op_cases({"linear"});
  const OpCase& qkv = find(cases, "linear qkv fp8, 8 x 5120 x 2880");
  EXPECT_DOUBLE_EQ(qkv.bytes, 5120.0 * 2880 + 4 * 40 * 23 + 2 * 5120 + 8 * 2.0 * (2880 + 5120));
  EXPECT_DOUBLE_EQ(qkv.flops, 2.0 * 8 * 5120 * 2880);
  EXPECT_EQ(qkv.unit, MatrixUnit::kE4m3);
  EXPECT_DOUBLE_EQ(find(cases, "linear qkv, 8 x 5120 x 2880").bytes,
                   2 * 5120.0 * 2880 + 2 * 5120 + 8 * 2.0 * (2880 + 5120));
  EXPECT_DOUBLE_EQ(find(cases, "linear unembedding fp8, 1 x 201088 x 2880").bytes,
                   201088.0 * 2880 + 4 * 1571 * 23 + 2 * 201088 + 2 * 2880 + 4 * 201088);
}

// 13,236,480 bytes an expert with its biases, 199.07 MFLOP a token for four of them: counted from the model's shapes.
TEST(OpCases, ExpertsCountWhatARowTouches) {
  const std::vector<OpCase> cases = op_cases({"experts of 128"});
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

TEST(OpCases, ExpertsInOtherFormsCountTheirOwnBytes) {
  const std::vector<OpCase> cases = op_cases({"experts"});
  const double expert = 3.0 * 2880 * 2880 + 4 * (45 * 23 + 23 * 23) + 2 * 3 * 2880, row = 4 * 2880 + 32;
  EXPECT_DOUBLE_EQ(find(cases, "experts of 32 fp8 weights, 128 rows balanced").bytes, 32 * expert + 128 * row);
  const OpCase &rounded = find(cases, "experts of 128, 128 rows balanced"),
               &exact = find(cases, "experts of 128 bf16 activations, 128 rows balanced");
  EXPECT_DOUBLE_EQ(exact.bytes, rounded.bytes);
  EXPECT_DOUBLE_EQ(exact.flops, rounded.flops);
  EXPECT_EQ(rounded.unit, MatrixUnit::kE4m3);
  EXPECT_EQ(exact.unit, MatrixUnit::kBf16);
}

// Public figures are of bf16 linear layers and KV, and of MXFP4 experts.
TEST(OpCases, PublicFiguresStandBesideTheSameFormats) {
  int known = 0;
  for (const OpCase& c : op_cases()) {
    if (c.public_us == 0) continue;
    ++known;
    EXPECT_EQ(c.kv, DType::kBf16) << c.name();
    EXPECT_EQ(c.weights, c.kind == OpKind::kExperts ? WeightFormat::kMxfp4 : WeightFormat::kBf16) << c.name();
    EXPECT_FALSE(c.bf16_activations) << c.name();
  }
  EXPECT_GT(known, 40);
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Functions of an operation's header that put work on a stream: declared in front of the reference; those that
// return a size or a truth launch nothing.
std::set<std::string> functions_of(const std::filesystem::path& header) {
  const std::string text = text_of(header), declared = text.substr(0, text.find("namespace ref"));
  static const std::regex function(R"(\n(?!bool )\w+ (\w+)\(const Stream& )");
  std::set<std::string> names;
  for (std::sregex_iterator at(declared.begin(), declared.end(), function), end; at != end; ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

// Functions with kernels that no row times, and why. A reason may wait for its function, but not stand beside rows.
const std::map<std::string, std::string>& untimed() {
  static const std::map<std::string, std::string> reasons = {
      {"ceilings", "what the rows are measured against"},
      {"decode_layers", "a whole step of one row: rose bench decode"},
      {"force_routing", "for benchmarks of whole models"},
      {"prepare_expert_scales", "once, at start"},
      {"quantize_weight", "once, at start"}};
  return reasons;
}

bool has_kernels(const std::filesystem::path& folder) {
  const std::filesystem::recursive_directory_iterator files(folder);
  return std::any_of(begin(files), end(files), [](const auto& file) { return file.path().extension() == ".cu"; });
}

// src/ops has a folder for each operation, with a header of its name. A folder with kernels and without such functions
// is looked for under its own name.
TEST(OpCases, EveryOperationWithAKernelHasARowOrAReason) {
  std::set<std::string> timed, all;
  for (const OpCase& c : op_cases()) timed.emplace(function_of(c.kind));
  for (const auto& folder : std::filesystem::directory_iterator(std::string(ROSE_SOURCE_DIR) + "/src/ops")) {
    if (!folder.is_directory() || !has_kernels(folder.path())) continue;
    const std::string name = folder.path().filename();
    const std::set<std::string> functions = functions_of(folder.path() / (name + ".h"));
    all.insert(functions.begin(), functions.end());
    if (functions.empty()) all.insert(name);
  }
  for (const std::string& function : all) {
    EXPECT_NE(timed.contains(function), untimed().contains(function))
        << function << ": give it rows (bench_ops_cases.cc) or a reason (untimed() above), not both";
  }
  for (const std::string& function : timed) {
    EXPECT_TRUE(all.contains(function)) << function << " of ROSE_OP_KINDS is no operation of src/ops with a kernel";
  }
}

TEST(OpCases, EveryKindHasRows) {
  const std::vector<OpCase> cases = op_cases();
  for (const OpKind kind : kOpKinds) {
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) { return c.kind == kind; }))
        << function_of(kind);
  }
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
  c.pages = rows;
  c.from_rows = 50;
  c.experts = 8;
  if (kind == OpKind::kExperts) c.weights = WeightFormat::kMxfp4;
  c.out = 96;
  c.in = 64;
  c.bytes = 1000;
  return c;
}

std::vector<OpCase> small_attention_cases() {
  std::vector<OpCase> cases;
  for (const DType kv : {DType::kBf16, DType::kF8E4M3}) {
    for (const int window : {0, 16}) {
      for (const int sequences : {1, 3}) {
        for (const int rows_each : {1, 40}) {
          OpCase c = small(OpKind::kAttention, sequences * rows_each);
          c.sequences = sequences;
          c.context = 100;
          c.window = window;
          c.kv = kv;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

std::vector<OpCase> small_cases() {
  std::vector<OpCase> cases = small_attention_cases();
  for (const OpKind kind : kOpKinds) {
    for (const int rows : {1, 37}) cases.push_back(small(kind, rows));
  }
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8}) {
    OpCase logits = small(OpKind::kLinear, 3);
    logits.out = logits.model.vocabulary;
    logits.weights = format;
    cases.push_back(logits);
  }
  for (const OpRouting routing : {OpRouting::kRandom, OpRouting::kSkewed}) {
    OpCase c = small(OpKind::kExperts, 5);
    c.routing = routing;
    cases.push_back(c);
  }
  OpCase fp8_experts = small(OpKind::kExperts, 5), exact_experts = small(OpKind::kExperts, 5);
  fp8_experts.weights = WeightFormat::kFp8;
  exact_experts.bf16_activations = true;
  cases.push_back(fp8_experts);
  cases.push_back(exact_experts);
  for (const OpKind kind : {OpKind::kRopeAppend, OpKind::kCopyPages}) {
    cases.push_back(small(kind, 37));
    cases.back().kv = DType::kF8E4M3;
  }
  return cases;
}

// Every copy's launch passes the operation's own checks (the attention's look at the page tables' contents), and writes
// all of its outputs.
TEST(OpInputs, EveryOperationRunsAndWritesItsOutputs) {
  for (const OpCase& c : small_cases()) {
    SCOPED_TRACE(testing::Message() << function_of(c.kind) << ", rows " << c.rows << ", sequences " << c.sequences
                                    << ", window " << c.window << ", " << dtype_name(c.kv) << " KV, "
                                    << weight_format_name(c.weights) << " weights");
    const PreparedOp op = prepare_op(c, Stream::cpu(1), host_fill(), 3000);
    EXPECT_EQ(op.copies, c.kind == OpKind::kExperts && c.rows > 1 ? 1 : 3);
    EXPECT_EQ(op.outputs.empty(), c.kind == OpKind::kAttentionPlan);
    EXPECT_EQ(bad_numbers(op) > 0, !op.outputs.empty());
    for (int i = 0; i < op.copies; ++i) op.launch(i);
    EXPECT_EQ(bad_numbers(op), 0);
  }
}

TEST(OpInputs, BadNumbersAreFoundInEveryFormat) {
  PreparedOp op;
  op.memory = std::make_unique<OpMemory>(Stream::cpu(1), host_fill());
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3, DType::kI32}) {
    const Tensor output = op.memory->tensor(dtype, {10}, 0);
    op.outputs = {output};
    EXPECT_EQ(bad_numbers(op), 0) << dtype_name(dtype);
    std::memset(static_cast<std::byte*>(output.raw()) + 3 * dtype_bytes(dtype), 0xff, dtype_bytes(dtype));
    EXPECT_EQ(bad_numbers(op), 1) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace rose
