#include "bench_ops_cases.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "bench_ops_published.h"
#include "ops/force_routing/force_routing.h"

namespace rose {
namespace {

constexpr OpShapes kModel;

constexpr double kQueryBytes = 2.0 * kModel.heads * kModel.head_dim;  // a row of q, or of the output
constexpr int kChunk = 8192;                                          // rows of a step, at most

// Keys and values of a position.
double kv_bytes(DType kv) { return 2.0 * kModel.kv_heads * kModel.head_dim * static_cast<double>(dtype_bytes(kv)); }

// Numbers and their scales; the bias is bf16.
double weight_bytes(WeightFormat format, std::int64_t out, std::int64_t in) {
  const WeightSizes sizes = weight_sizes(format, 0, out, in);
  return static_cast<double>(sizes.payload + sizes.scales) + 2.0 * static_cast<double>(out);
}

std::string with_kv(const std::string& op, DType kv) { return kv == DType::kF8E4M3 ? op + " fp8 KV" : op; }

std::string tokens_name(int tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k", tokens / 1024) : fmt::format("{}", tokens);
}

// Positions that `rows` rows see, together: row r of them has position context - rows + r.
double visible_pairs(int rows, int context, int window) {
  double pairs = 0;
  for (int position = context - rows; position < context; ++position) {
    pairs += window > 0 ? std::min(position + 1, window) : position + 1;
  }
  return pairs;
}

OpCase attention(const std::string& op, std::string shape, int sequences, int rows_each, int context, int window,
                 DType kv) {
  OpCase c{.model = kModel, .kind = OpKind::kAttention, .op = with_kv(op, kv), .shape = std::move(shape)};
  c.rows = sequences * rows_each;
  c.sequences = sequences;
  c.context = context;
  c.window = window;
  c.kv = kv;
  c.unit = MatrixUnit::kBf16;  // FP8 keys and values are widened
  c.flops = 4.0 * kModel.heads * kModel.head_dim * sequences * visible_pairs(rows_each, context, window);
  const int read = window > 0 ? std::min(context, rows_each + window - 1) : context;
  c.bytes = sequences * (2 * kQueryBytes * rows_each + kv_bytes(kv) * read);
  return c;
}

const char* seen(int window) { return window > 0 ? "window" : "full"; }

void add_prefill(std::vector<OpCase>& cases, DType kv, const std::vector<int>& lengths) {
  for (const int window : {0, kModel.window}) {
    for (const int tokens : lengths) {
      cases.push_back(attention(fmt::format("attention prefill {}", seen(window)), tokens_name(tokens), 1, tokens,
                                tokens, window, kv));
      if (kv == DType::kBf16) set_public(cases.back(), public_attention_prefill(tokens, window));
    }
  }
}

void add_chunk(std::vector<OpCase>& cases, DType kv, const std::vector<int>& contexts) {
  for (const int context : contexts) {
    cases.push_back(
        attention("attention chunk full", fmt::format("8k of {}", tokens_name(context)), 1, kChunk, context, 0, kv));
  }
}

void add_decode(std::vector<OpCase>& cases, DType kv) {
  for (const int window : {0, kModel.window}) {
    for (const int sequences : {1, 8, 64, 128}) {
      for (const int context : {1024, 8192, 65536, 131072}) {
        if (window > 0 && context != 8192) continue;  // a window costs the same behind any context
        cases.push_back(attention(fmt::format("attention decode {}", seen(window)),
                                  fmt::format("{} x {}", sequences, tokens_name(context)), sequences, 1, context,
                                  window, kv));
        if (kv == DType::kBf16) set_public(cases.back(), public_attention_decode(sequences, context, window));
      }
    }
  }
}

// What the step says of its sequences; the lists made of it are the kernels' own.
OpCase attention_plan(const char* step, std::string shape, int sequences, int rows_each, int context, int window) {
  OpCase c{.model = kModel,
           .kind = OpKind::kAttentionPlan,
           .op = fmt::format("attention plan {} {}", step, seen(window)),
           .shape = std::move(shape)};
  c.rows = sequences * rows_each;
  c.sequences = sequences;
  c.context = context;
  c.window = window;
  c.bytes = 4.0 * (3 * sequences + 1);
  return c;
}

void add_attention_plan(std::vector<OpCase>& cases) {
  for (const int window : {0, kModel.window}) {
    cases.push_back(attention_plan("prefill", "8k", 1, kChunk, kChunk, window));
    for (const int sequences : {1, 8, 64, 128}) {
      cases.push_back(attention_plan("decode", fmt::format("{} x 8k", sequences), sequences, 1, 8192, window));
    }
  }
}

void add_copy_pages(std::vector<OpCase>& cases, DType kv) {
  for (const int pages : {1, 32, 1024}) {
    OpCase c{.model = kModel,
             .kind = OpKind::kCopyPages,
             .op = with_kv("copy pages", kv),
             .shape = fmt::format("{} pages of {}", pages, kOpPageSize)};
    c.pages = pages;
    c.kv = kv;
    c.bytes = pages * (2 * kOpPageSize * kv_bytes(kv) + 8);  // read, written; the pair
    cases.push_back(std::move(c));
  }
}

const char* routing_name(OpRouting routing) {
  switch (routing) {
    case OpRouting::kBalanced:
      return "balanced";
    case OpRouting::kRandom:
      return "random";
    case OpRouting::kSkewed:
      return "skewed";
  }
  return "";
}

// Experts that at least one row chooses.
double touched_experts(const OpCase& c) {
  std::vector<bool> touched(static_cast<std::size_t>(c.experts), false);
  for (const std::int32_t expert : chosen_experts(c, 0)) touched[static_cast<std::size_t>(expert)] = true;
  return static_cast<double>(std::count(touched.begin(), touched.end(), true));
}

struct ExpertsList {
  std::string form = {};  // what the name says of weights and activations; as published: nothing
  WeightFormat weights = WeightFormat::kMxfp4;
  bool bf16_activations = false;
  std::vector<OpRouting> routings = {};
  std::vector<int> rows = {};
};

OpCase experts_case(const ExpertsList& list, int experts, OpRouting routing, int rows) {
  OpCase c{.model = kModel,
           .kind = OpKind::kExperts,
           .op = fmt::format("experts of {}{}", experts, list.form),
           .shape = fmt::format("{} rows {}", rows, routing_name(routing))};
  c.rows = rows;
  c.experts = experts;
  c.routing = routing;
  c.weights = list.weights;
  c.bf16_activations = list.bf16_activations;
  c.unit = list.bf16_activations ? MatrixUnit::kBf16 : MatrixUnit::kE4m3;
  c.flops = 2.0 * rows * kModel.experts_per_token * 3 * kModel.hidden * kModel.intermediate;
  const double expert_bytes = weight_bytes(list.weights, 2 * std::int64_t{kModel.intermediate}, kModel.hidden) +
                              weight_bytes(list.weights, kModel.hidden, kModel.intermediate);
  c.bytes = touched_experts(c) * expert_bytes + rows * (4.0 * kModel.hidden + 8.0 * kModel.experts_per_token);
  return c;
}

void add_experts(std::vector<OpCase>& cases, const ExpertsList& list) {
  for (const int experts : {32, 128}) {
    for (const OpRouting routing : list.routings) {
      for (const int rows : list.rows) {
        cases.push_back(experts_case(list, experts, routing, rows));
        if (list.form.empty()) set_public(cases.back(), public_experts(experts, rows, routing));
      }
    }
  }
}

void add_experts(std::vector<OpCase>& cases) {
  add_experts(cases, {.routings = {OpRouting::kBalanced, OpRouting::kRandom, OpRouting::kSkewed},
                      .rows = {1, 8, 32, 64, 128, 512, 1024, 2048, 4096, 8192}});
  add_experts(cases, {.form = " fp8 weights",
                      .weights = WeightFormat::kFp8,
                      .routings = {OpRouting::kBalanced},
                      .rows = {1, 8, 32, 128, 1024, 8192}});
  // Up to 8 rows MXFP4 weights meet bf16 activations without being asked to.
  add_experts(cases, {.form = " bf16 activations",
                      .bf16_activations = true,
                      .routings = {OpRouting::kBalanced},
                      .rows = {16, 32, 64, 128, 512}});
}

// Weights as stored, or as --dense fp8 rounds them: then x is rounded beside each product.
void add_linear(std::vector<OpCase>& cases, const char* name, int out, int in, const std::vector<int>& rows_list) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8}) {
    const bool fp8 = format == WeightFormat::kFp8;
    for (const int rows : rows_list) {
      OpCase c{.model = kModel,
               .kind = OpKind::kLinear,
               .op = fmt::format("linear {}{}", name, fp8 ? " fp8" : ""),
               .shape = fmt::format("{} x {} x {}", rows, out, in)};
      c.rows = rows;
      c.out = out;
      c.in = in;
      c.weights = format;
      c.unit = fp8 ? MatrixUnit::kE4m3 : MatrixUnit::kBf16;
      c.flops = 2.0 * rows * out * in;
      const double y_bytes = out == kModel.vocabulary ? 4 : 2;  // logits are f32
      c.bytes = weight_bytes(format, out, in) + rows * (2.0 * in + y_bytes * out);
      if (!fp8) set_public(c, public_linear(out, rows));
      cases.push_back(std::move(c));
    }
  }
}

void add_rowwise(std::vector<OpCase>& cases, OpKind kind, const std::string& op, double bytes_row,
                 const std::vector<int>& rows_list) {
  for (const int rows : rows_list) {
    cases.push_back({.model = kModel,
                     .kind = kind,
                     .op = op,
                     .shape = fmt::format("{} rows", rows),
                     .rows = rows,
                     .bytes = bytes_row * rows});
  }
}

void add_route(std::vector<OpCase>& cases) {
  for (const int experts : {32, 128}) {
    for (const int rows : {1, 32, 128, 1024, 8192}) {
      OpCase c{.model = kModel,
               .kind = OpKind::kRoute,
               .op = fmt::format("route to {}", experts),
               .shape = fmt::format("{} rows", rows)};
      c.rows = rows;
      c.experts = experts;
      c.unit = MatrixUnit::kBf16;
      c.flops = 2.0 * rows * experts * kModel.hidden;
      c.bytes = 2.0 * experts * (kModel.hidden + 1) + rows * (2.0 * kModel.hidden + 8.0 * kModel.experts_per_token);
      cases.push_back(std::move(c));
    }
  }
}

void add_rope_append(std::vector<OpCase>& cases, DType kv, const std::vector<int>& rows_list) {
  constexpr double kQkvBytes = 2.0 * (kModel.heads + 2 * kModel.kv_heads) * kModel.head_dim;
  const double bytes_row = kQkvBytes + kQueryBytes + kv_bytes(kv) + 8;  // read; both written; position and slot
  const std::size_t first = cases.size();
  add_rowwise(cases, OpKind::kRopeAppend, with_kv("rope and append", kv), bytes_row, rows_list);
  for (std::size_t i = first; i < cases.size(); ++i) cases[i].kv = kv;
}

void add_gather(std::vector<OpCase>& cases) {
  for (const int rows : {1, 8, 32, 128}) {
    OpCase c{.model = kModel,
             .kind = OpKind::kGatherRows,
             .op = "gather rows",
             .shape = fmt::format("{} of {} rows", rows, kChunk)};
    c.rows = rows;
    c.from_rows = kChunk;
    c.bytes = rows * (4.0 * kModel.hidden + 4);
    cases.push_back(std::move(c));
  }
}

}  // namespace

std::string_view function_of(OpKind kind) {
  switch (kind) {
#define ROSE_X(enumerator, function) \
  case OpKind::enumerator:           \
    return function;
    ROSE_OP_KINDS(ROSE_X)
#undef ROSE_X
  }
  return "";
}

std::vector<std::int32_t> chosen_experts(const OpCase& c, int copy) {
  const auto each = static_cast<std::size_t>(c.model.experts_per_token), rows = static_cast<std::size_t>(c.rows);
  std::vector<std::int32_t> chosen(rows * each), left(static_cast<std::size_t>(c.experts));
  if (c.routing != OpRouting::kRandom) {
    const bool skewed = c.routing == OpRouting::kSkewed;
    const ops::ForcedRouting forced(skewed ? ops::RoutingMode::kSkewed : ops::RoutingMode::kBalanced, c.experts);
    // Balanced rows go on where those of the previous copy ended; skewed ones are another layer's.
    const int first = skewed ? 0 : copy * c.rows, layer = skewed ? copy : 0;
    for (std::size_t r = 0; r < rows; ++r) {
      ops::choose_forced(forced.pattern(), static_cast<std::uint32_t>(layer),
                         static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(r), static_cast<int>(each),
                         chosen.data() + r * each);
    }
    return chosen;
  }
  for (std::size_t r = 0; r < rows; ++r) {
    std::iota(left.begin(), left.end(), 0);
    for (std::size_t i = 0; i < each; ++i) {  // the beginning of a shuffle: distinct within the row
      const std::uint64_t draw = random_bits(static_cast<std::uint64_t>(copy), r * each + i);
      std::swap(left[i], left[i + draw % (left.size() - i)]);
      chosen[r * each + i] = left[i];
    }
  }
  return chosen;
}

std::vector<OpCase> op_cases(const std::vector<std::string>& filters) {
  constexpr int kQkv = (kModel.heads + 2 * kModel.kv_heads) * kModel.head_dim,
                kAttended = kModel.heads * kModel.head_dim;
  const std::vector<int> rows = {1, 8, 32, 64, 128, 512, 1024, 4096, 8192}, few = {1, 8, 32, 64, 128},
                         some = {1, 32, 128, 1024, 8192};
  std::vector<OpCase> cases;
  add_rowwise(cases, OpKind::kResolveTokens, "resolve tokens", 12, {1, 128});  // source, last token, token
  add_attention_plan(cases);
  add_rowwise(cases, OpKind::kEmbed, "embed", 4.0 * kModel.hidden + 4, some);
  add_rowwise(cases, OpKind::kNorm, "add and norm", 8.0 * kModel.hidden, some);  // the residual is read and written
  add_linear(cases, "qkv", kQkv, kModel.hidden, rows);
  for (const DType kv : {DType::kBf16, DType::kF8E4M3}) add_rope_append(cases, kv, some);
  add_prefill(cases, DType::kBf16, {1024, 4096, 8192, 16384, 32768, 65536, 131072});
  add_chunk(cases, DType::kBf16, {32768, 131072});
  add_decode(cases, DType::kBf16);
  add_prefill(cases, DType::kF8E4M3, {1024, 8192, 32768, 131072});
  add_chunk(cases, DType::kF8E4M3, {131072});
  add_decode(cases, DType::kF8E4M3);
  add_linear(cases, "output", kModel.hidden, kAttended, rows);
  add_route(cases);
  add_experts(cases);
  add_gather(cases);
  add_linear(cases, "unembedding", kModel.vocabulary, kModel.hidden, few);
  add_rowwise(cases, OpKind::kSample, "sample", 4.0 * kModel.vocabulary, {1, 8, 32, 128});
  for (const DType kv : {DType::kBf16, DType::kF8E4M3}) add_copy_pages(cases, kv);
  const auto matches = [&](const OpCase& c) {
    return std::any_of(filters.begin(), filters.end(),
                       [name = c.name()](const std::string& f) { return name.find(f) != std::string::npos; });
  };
  if (!filters.empty()) std::erase_if(cases, [&](const OpCase& c) { return !matches(c); });
  return cases;
}

void print_op_cases(const std::vector<OpCase>& cases) {
  std::printf("%-32s %-24s %14s %12s %14s  %s\n", "operation", "shape", "GFLOP", "MB", "best public us", "source");
  for (const OpCase& c : cases) {
    const std::string best = c.public_us > 0 ? fmt::format("{:.1f}", c.public_us) : "-";
    std::printf("%-32s %-24s %14.4f %12.4f %14s  %s\n", c.op.c_str(), c.shape.c_str(), c.flops * 1e-9, c.bytes * 1e-6,
                best.c_str(), c.public_source.c_str());
  }
}

}  // namespace rose
