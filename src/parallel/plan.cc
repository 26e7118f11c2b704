#include "parallel/plan.h"

#include <algorithm>

namespace rose {

std::string ParallelPlan::describe() const { return fmt::format("dp{} tp{} ep{}", dp, tp, ep); }

ShardRange shard_range(std::int64_t count, int parts, int rank, std::int64_t unit) {
  CHECK(count >= 0 && parts >= 1 && rank >= 0 && rank < parts && unit >= 1, "part {} of {} of {} by {}", rank, parts,
        count, unit);
  const std::int64_t units = (count + unit - 1) / unit;
  const std::int64_t each = (units + parts - 1) / parts;
  const auto at = [&](int part) { return std::min(count, std::min(units, each * part) * unit); };
  return {at(rank), at(rank + 1)};
}

void check_plan(const ParallelPlan& plan, const PlanShape& shape) {
  const auto refuse = [&](const std::string& why) {
    throw StartError(fmt::format("parallel plan {} does not fit: {}", plan.describe(), why), kExitUsage);
  };
  if (plan.dp < 1 || plan.tp < 1 || plan.ep < 1) refuse("dp, tp and ep must be 1 or more");
  if (plan.ranks() % plan.ep != 0) {
    refuse(fmt::format("ep = {} must divide dp * tp = {} * {} = {}", plan.ep, plan.dp, plan.tp, plan.ranks()));
  }
  if (shape.heads % plan.tp != 0) refuse(fmt::format("tp = {} must divide {} query heads", plan.tp, shape.heads));
  if (shape.kv_heads % plan.tp != 0) refuse(fmt::format("tp = {} must divide {} KV heads", plan.tp, shape.kv_heads));
  if (shape.experts % plan.ep != 0) refuse(fmt::format("ep = {} must divide {} experts", plan.ep, shape.experts));
}

}  // namespace rose
