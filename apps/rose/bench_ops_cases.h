// What rose bench ops times: each operation at each shape, with its FLOPs and bytes counted by formula, and the best
// public figure for the same work where there is one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "weights/format.h"

namespace rose {

//   X(enumerator, "the operation's function in src/ops")
#define ROSE_OP_KINDS(X)              \
  X(kResolveTokens, "resolve_tokens") \
  X(kEmbed, "embed")                  \
  X(kNorm, "reduce_add_rms_norm")     \
  X(kLinear, "linear")                \
  X(kRopeAppend, "rope_append")       \
  X(kAttentionPlan, "plan_attention") \
  X(kAttention, "attention")          \
  X(kCopyPages, "copy_pages")         \
  X(kRoute, "route")                  \
  X(kExperts, "experts")              \
  X(kGatherRows, "gather_rows")       \
  X(kSample, "sample")

enum class OpKind : std::uint8_t {
#define ROSE_X(enumerator, function) enumerator,
  ROSE_OP_KINDS(ROSE_X)
#undef ROSE_X
};

inline constexpr OpKind kOpKinds[] = {
#define ROSE_X(enumerator, function) OpKind::enumerator,
    ROSE_OP_KINDS(ROSE_X)
#undef ROSE_X
};

std::string_view function_of(OpKind kind);

enum class MatrixUnit : std::uint8_t { kNone, kBf16, kE4m3 };  // of the tensor cores

// How rows divide over the experts: equally; each row at random; as a power law (ops/force_routing).
enum class OpRouting : std::uint8_t { kBalanced, kRandom, kSkewed };

// What gpt-oss-20b and 120b share.
struct OpShapes {
  int hidden = 2880;
  int intermediate = 2880;
  int heads = 64;
  int kv_heads = 8;
  int head_dim = 64;
  int window = 128;
  int experts_per_token = 4;
  int vocabulary = 201088;
};

inline constexpr int kOpPageSize = 32;  // positions

struct OpCase {
  OpShapes model = {};
  OpKind kind = OpKind::kLinear;
  std::string op = {};                         // "attention decode, full"
  std::string shape = {};                      // "8 x 65536"
  int rows = 0;                                // new rows, of all sequences
  int sequences = 1;                           // attention
  int context = 0;                             // attention: positions in KV behind each sequence's last row
  int window = 0;                              // attention: 0 is full
  int pages = 0;                               // copy_pages
  int from_rows = 0;                           // gather_rows: rows to take `rows` from
  int out = 0;                                 // linear
  int in = 0;                                  // linear
  int experts = 0;                             // experts, route
  OpRouting routing = OpRouting::kBalanced;    // experts
  WeightFormat weights = WeightFormat::kBf16;  // linear, experts
  bool bf16_activations = false;               // experts: ExpertWeights::bf16_activations
  DType kv = DType::kBf16;                     // of the pages

  double flops = 0;  // 0: the bytes bind
  double bytes = 0;  // each input once, each output once
  MatrixUnit unit = MatrixUnit::kNone;
  double public_us = 0;  // 0: none
  std::string public_source = {};

  std::string name() const { return op + ", " + shape; }
};

// The experts of each row. `copy` picks others, so that copies of few rows touch different weights.
std::vector<std::int32_t> chosen_experts(const OpCase& c, int copy);

// In the order of a step; only those whose name contains one of `filters`, all where there is none.
std::vector<OpCase> op_cases(const std::vector<std::string>& filters = {});

// A table on stdout: no time, but everything known before one is measured.
void print_op_cases(const std::vector<OpCase>& cases);

}  // namespace rose
