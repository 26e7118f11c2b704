// How one model is laid over the GPUs of a node: numbers, and pure functions of them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace rose {

// dp x tp ranks. Attention is split over tp and replicated over dp; experts are split over ep (any divisor of dp * tp).
struct ParallelPlan {
  int dp = 1;
  int tp = 1;
  int ep = 1;

  int ranks() const { return dp * tp; }
  std::string describe() const;  // "dp1 tp2 ep2"
};

// How a tensor is split over the ranks.
enum class Shard : std::uint8_t {
  kCopy,           // whole on every rank
  kRows,           // dim 0 cut over tp (output features, heads)
  kColumns,        // dim 1 cut over tp (input features)
  kExpertRows,     // experts over ep; rows of each over tp / ep (gate_up)
  kExpertColumns,  // experts over ep; columns of each over tp / ep (down)
};

struct ShardRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

// Part `rank` of `parts` of `count` items in units of `unit`: as even as whole units allow, earlier parts first.
ShardRange shard_range(std::int64_t count, int parts, int rank, std::int64_t unit = 1);

struct PlanShape {  // what a plan must divide
  int heads = 0;
  int kv_heads = 0;
  int experts = 0;
};

// Throws StartError with the arithmetic shown when the plan does not fit the shape.
void check_plan(const ParallelPlan& plan, const PlanShape& shape);

}  // namespace rose
