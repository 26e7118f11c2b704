// Loading, and encoding by kind of text: bytes of input a second. The worst cases are one piece each, as long as the
// text.
#include <benchmark/benchmark.h>

#include <string>

#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"

namespace rose {
namespace {

const std::string& ranks() {
  static const std::string file = repository_file("tests/data/o200k_base.tiktoken");
  return file;
}

const Tokenizer& o200k() {
  static const std::unique_ptr<Tokenizer> tokenizer = tokenizer_from_tiktoken(ranks());
  return *tokenizer;
}

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(bytes));
}

void load_tiktoken(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer_from_tiktoken(ranks()));
  count_bytes(state, ranks().size());
}
BENCHMARK(load_tiktoken)->Unit(benchmark::kMillisecond);

void load_json(benchmark::State& state) {
  const std::string file = o200k_json(o200k()).text;
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer_from_json(file));
  count_bytes(state, file.size());
}
BENCHMARK(load_json)->Unit(benchmark::kMillisecond);

void parse_json(benchmark::State& state) {
  const std::string file = o200k_json(o200k()).text;
  for (auto _ : state) benchmark::DoNotOptimize(json::parse(file));
  count_bytes(state, file.size());
}
BENCHMARK(parse_json)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state, const std::string& text) {
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    o200k().encode_append(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  count_bytes(state, text.size());
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(ids.size());
}

constexpr std::size_t kTextBytes = 1'000'000;

std::string filled(std::string_view unit) { return repeated(unit, kTextBytes / unit.size()); }

constexpr std::string_view kEnglish =
    "It was a bright cold day in the north, and the engineers were measuring how fast text becomes numbers. They "
    "didn't "
    "expect much; \"forty megabytes a second,\" said one of them, \"would be enough for 1,000 requests.\" By evening "
    "they'd written everything down, checked it twice, and gone home (late, as usual).\n\n";
constexpr std::string_view kCode =
    "  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {\n    const TokenId id = tokens.find(parts[i] + parts[i + "
    "1]);"
    "\n    if (id != kNone && id < best_id) best = i, best_id = id;  // leftmost of equals\n  }\n\treturn {\"key\": "
    "12.5};\n";
constexpr std::string_view kRussian = "Это обычное предложение, чтобы измерить скорость; в нём 27 слов нет. ";
constexpr std::string_view kJapanese = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。";

BENCHMARK_CAPTURE(encode, english, filled(kEnglish))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, code, filled(kCode))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, russian, filled(kRussian))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, japanese, filled(kJapanese))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_piece_a, filled("a"))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_piece_spaces, filled(" "))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_piece_chinese, filled("\u4E2D\u6587\u8BCD\u5178\u5F88\u957F"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_piece_dna, filled("ACGTTGCAATCGGCTA"))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_piece_equals, filled("="))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, pieces_of_64, filled(repeated("xq", 31) + "1 "))->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const std::string text = filled(kEnglish);
  const std::vector<TokenId> ids = o200k().encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(o200k().decode_all(ids));
  count_bytes(state, text.size());
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rose
