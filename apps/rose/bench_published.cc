// Source: kPublishedPrefillSource. Prefill latency in seconds and dollars for a million input tokens, DP 1, one H200 at
// $3.00 an hour. The dollars are kept as published: they check the arithmetic of our own (bench_test.cc).
#include "bench_published.h"

#include <algorithm>
#include <array>

namespace rose {
namespace {

constexpr std::array kTokens = {8192, 32768, 65536, 128000};

struct Row {
  const char* model;
  int gpus;
  std::array<PublishedPrefill, kTokens.size()> cells;
};

constexpr std::array kTable = {
    Row{"gpt-oss-120b", 1, {{{0.364, 0.037}, {2.421, 0.062}, {7.375, 0.094}, {23.902, 0.156}}}},
    Row{"gpt-oss-120b", 2, {{{0.190, 0.039}, {1.245, 0.063}, {3.786, 0.096}, {12.116, 0.158}}}},
    Row{"gpt-oss-120b", 4, {{{0.165, 0.067}, {0.900, 0.092}, {2.449, 0.125}, {7.165, 0.187}}}},
    Row{"gpt-oss-120b", 8, {{{0.179, 0.145}, {0.839, 0.171}, {2.003, 0.204}, {5.119, 0.267}}}},
    Row{"gpt-oss-20b", 1, {{{0.239, 0.024}, {1.610, 0.041}, {4.895, 0.062}, {16.037, 0.104}}}},
    Row{"gpt-oss-20b", 2, {{{0.127, 0.026}, {0.833, 0.042}, {2.522, 0.064}, {8.143, 0.106}}}},
    Row{"gpt-oss-20b", 4, {{{0.108, 0.044}, {0.593, 0.060}, {1.616, 0.082}, {4.766, 0.124}}}},
    Row{"gpt-oss-20b", 8, {{{0.116, 0.094}, {0.547, 0.111}, {1.310, 0.133}, {3.365, 0.175}}}},
};

}  // namespace

std::string published_model(const ModelShape& shape) {
  if (shape.hidden != 2880) return "";
  if (shape.layers == 24 && shape.experts == 32) return "gpt-oss-20b";
  if (shape.layers == 36 && shape.experts == 128) return "gpt-oss-120b";
  return "";
}

std::optional<PublishedPrefill> published_prefill(const std::string& model, int gpus, int tokens) {
  const auto* const column = std::find(kTokens.begin(), kTokens.end(), tokens);
  if (column == kTokens.end()) return std::nullopt;
  for (const Row& row : kTable) {
    if (row.model == model && row.gpus == gpus) {
      return row.cells.at(static_cast<std::size_t>(column - kTokens.begin()));
    }
  }
  return std::nullopt;
}

}  // namespace rose
