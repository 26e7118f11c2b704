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
constexpr double kKvBytes = 4.0 * kModel.kv_heads * kModel.head_dim;  // keys and values of a position
constexpr double kExpertBytes = 3.0 * kModel.hidden * kModel.intermediate * (0.5 + 1.0 / 32) +  // codes, scales
                                2.0 * (2 * kModel.intermediate + kModel.hidden);                // biases

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

OpCase attention(std::string op, std::string shape, int sequences, int rows_each, int context, int window) {
  OpCase c{.model = kModel, .kind = OpKind::kAttention, .op = std::move(op), .shape = std::move(shape)};
  c.rows = sequences * rows_each;
  c.sequences = sequences;
  c.context = context;
  c.window = window;
  c.unit = MatrixUnit::kBf16;
  c.flops = 4.0 * kModel.heads * kModel.head_dim * sequences * visible_pairs(rows_each, context, window);
  const int read = window > 0 ? std::min(context, rows_each + window - 1) : context;
  c.bytes = sequences * (2 * kQueryBytes * rows_each + kKvBytes * read);
  return c;
}

void add_attention(std::vector<OpCase>& cases) {
  constexpr int kChunk = 8192;
  for (const int window : {0, kModel.window}) {
    const std::string seen = window > 0 ? "window" : "full";
    for (const int tokens : {1024, 4096, 8192, 16384, 32768, 65536, 131072}) {
      cases.push_back(attention("attention prefill " + seen, tokens_name(tokens), 1, tokens, tokens, window));
      set_public(cases.back(), public_attention_prefill(tokens, window));
    }
  }
  for (const int context : {32768, 131072}) {
    cases.push_back(
        attention("attention chunk full", fmt::format("8k of {}", tokens_name(context)), 1, kChunk, context, 0));
  }
  for (const int window : {0, kModel.window}) {
    for (const int sequences : {1, 8, 64, 128}) {
      for (const int context : {1024, 8192, 65536, 131072}) {
        if (window > 0 && context != 8192) continue;  // a window costs the same behind any context
        cases.push_back(attention(std::string("attention decode ") + (window > 0 ? "window" : "full"),
                                  fmt::format("{} x {}", sequences, tokens_name(context)), sequences, 1, context,
                                  window));
        set_public(cases.back(), public_attention_decode(sequences, context, window));
      }
    }
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

void add_experts(std::vector<OpCase>& cases) {
  for (const int experts : {32, 128}) {
    for (const OpRouting routing : {OpRouting::kBalanced, OpRouting::kRandom, OpRouting::kSkewed}) {
      for (const int rows : {1, 8, 32, 64, 128, 512, 1024, 2048, 4096, 8192}) {
        OpCase c{.model = kModel,
                 .kind = OpKind::kExperts,
                 .op = fmt::format("experts of {}", experts),
                 .shape = fmt::format("{} rows {}", rows, routing_name(routing))};
        c.rows = rows;
        c.experts = experts;
        c.routing = routing;
        c.unit = MatrixUnit::kE4m3;
        c.flops = 2.0 * rows * kModel.experts_per_token * 3 * kModel.hidden * kModel.intermediate;
        c.bytes = touched_experts(c) * kExpertBytes + rows * (4.0 * kModel.hidden + 8.0 * kModel.experts_per_token);
        set_public(c, public_experts(experts, rows, routing));
        cases.push_back(std::move(c));
      }
    }
  }
}

void add_linear(std::vector<OpCase>& cases, const char* name, int out, int in, const std::vector<int>& rows_list) {
  for (const int rows : rows_list) {
    OpCase c{.model = kModel,
             .kind = OpKind::kLinear,
             .op = fmt::format("linear {}", name),
             .shape = fmt::format("{} x {} x {}", rows, out, in)};
    c.rows = rows;
    c.out = out;
    c.in = in;
    c.unit = MatrixUnit::kBf16;
    c.flops = 2.0 * rows * out * in;
    const double y_bytes = out == kModel.vocabulary ? 4 : 2;  // logits are f32
    c.bytes = 2.0 * out * in + 2.0 * out + rows * (2.0 * in + y_bytes * out);
    set_public(c, public_linear(out, rows));
    cases.push_back(std::move(c));
  }
}

void add_rowwise(std::vector<OpCase>& cases, OpKind kind, const char* op, double bytes_row,
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

}  // namespace

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

std::vector<OpCase> op_cases(const std::string& filter) {
  constexpr int kQkv = (kModel.heads + 2 * kModel.kv_heads) * kModel.head_dim,
                kAttention = kModel.heads * kModel.head_dim;
  const std::vector<int> rows = {1, 8, 32, 64, 128, 512, 1024, 4096, 8192}, few = {1, 8, 32, 64, 128},
                         some = {1, 32, 128, 1024, 8192};
  std::vector<OpCase> cases;
  add_rowwise(cases, OpKind::kEmbed, "embed", 4.0 * kModel.hidden + 4, some);
  add_rowwise(cases, OpKind::kNorm, "add and norm", 8.0 * kModel.hidden, some);  // the residual is read and written
  add_linear(cases, "qkv", kQkv, kModel.hidden, rows);
  add_rowwise(cases, OpKind::kRopeAppend, "rope and append", 4.0 * kQkv + 8, some);
  add_attention(cases);
  add_linear(cases, "output", kModel.hidden, kAttention, rows);
  add_route(cases);
  add_experts(cases);
  add_linear(cases, "unembedding", kModel.vocabulary, kModel.hidden, few);
  add_rowwise(cases, OpKind::kSample, "sample", 4.0 * kModel.vocabulary, {1, 8, 32, 128});
  std::erase_if(cases, [&](const OpCase& c) { return c.name().find(filter) == std::string::npos; });
  return cases;
}

void print_op_cases(const std::vector<OpCase>& cases) {
  std::printf("%-26s %-24s %14s %12s %14s  %s\n", "operation", "shape", "GFLOP", "MB", "best public us", "source");
  for (const OpCase& c : cases) {
    const std::string best = c.public_us > 0 ? fmt::format("{:.1f}", c.public_us) : "-";
    std::printf("%-26s %-24s %14.4f %12.3f %14s  %s\n", c.op.c_str(), c.shape.c_str(), c.flops * 1e-9, c.bytes * 1e-6,
                best.c_str(), c.public_source.c_str());
  }
}

}  // namespace rose
