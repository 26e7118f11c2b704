// What rose bench ops times: each operation at each shape, with its FLOPs and bytes counted by formula, and the best
// public figure for the same work where there is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rose {

enum class OpKind : std::uint8_t { kAttention, kExperts, kLinear, kNorm, kRopeAppend, kRoute, kSample, kEmbed };
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

struct OpCase {
  OpShapes model = {};
  OpKind kind = OpKind::kLinear;
  std::string op = {};                       // "attention decode, full"
  std::string shape = {};                    // "8 x 65536"
  int rows = 0;                              // new rows, of all sequences
  int sequences = 1;                         // attention
  int context = 0;                           // attention: positions in KV behind each sequence's last row
  int window = 0;                            // attention: 0 is full
  int out = 0;                               // linear
  int in = 0;                                // linear
  int experts = 0;                           // experts, route
  OpRouting routing = OpRouting::kBalanced;  // experts

  double flops = 0;  // 0: the bytes bind
  double bytes = 0;  // each input once, each output once
  MatrixUnit unit = MatrixUnit::kNone;
  double public_us = 0;  // 0: none
  std::string public_source = {};

  std::string name() const { return op + ", " + shape; }
};

// The experts of each row. `copy` picks others, so that copies of few rows touch different weights.
std::vector<std::int32_t> chosen_experts(const OpCase& c, int copy);

// In the order of a layer; only those whose name contains `filter`.
std::vector<OpCase> op_cases(const std::string& filter = "");

// A table on stdout: no time, but everything known before one is measured.
void print_op_cases(const std::vector<OpCase>& cases);

}  // namespace rose
