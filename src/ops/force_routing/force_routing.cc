#include "ops/force_routing/force_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/check.h"
#include "ops/force_routing/force_routing_cuda.h"

namespace rose::ops {

std::string_view routing_mode_name(RoutingMode mode) {
  switch (mode) {
#define ROSE_X(enumerator, name) \
  case RoutingMode::enumerator:  \
    return name;
    ROSE_ROUTING_MODES(ROSE_X)
#undef ROSE_X
  }
  return "";
}

std::optional<RoutingMode> routing_mode_from_name(std::string_view name) {
#define ROSE_X(enumerator, text) \
  if (name == (text)) return RoutingMode::enumerator;
  ROSE_ROUTING_MODES(ROSE_X)
#undef ROSE_X
  return std::nullopt;
}

ForcedRouting::ForcedRouting(RoutingMode mode, int experts) : mode_(mode) {
  CHECK(experts > 0 && experts <= RoutingPattern::kExpertsMax, "routing over {} experts", experts);
  pattern_.skewed = mode == RoutingMode::kSkewed;
  pattern_.experts = static_cast<std::uint32_t>(experts);
  // Near the golden section: neighbouring rows then meet experts far apart.
  auto stride = static_cast<std::uint32_t>(std::max(1.0, std::floor(0.618 * experts)));
  while (std::gcd(stride, pattern_.experts) != 1) ++stride;
  pattern_.stride = stride;
  const auto share = [](int rank) { return std::pow(rank + 1.0, -1.2); };
  double sum = 0, until = 0;
  for (int rank = 0; rank < experts; ++rank) sum += share(rank);
  for (int rank = 0; rank < experts - 1; ++rank) {
    until += share(rank);
    pattern_.below[rank] = static_cast<std::uint32_t>(until / sum * 0x1p32);
  }
  pattern_.below[experts - 1] = 0xffffffffu;
}

void force_routing(const Stream& stream, const ForcedRouting& forced, int layer, Routing& routing) {
  check_tensor(stream, "force_routing: experts", routing.experts, {DType::kI32}, {-1, -1});
  if (forced.mode() == RoutingMode::kNatural) return;
  CHECK(layer >= 0 && routing.experts.size(1) <= forced.pattern().experts, "layer {}, {} of {} experts", layer,
        routing.experts.size(1), forced.pattern().experts);
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::force_routing(forced, layer, routing);
      return;
    case DeviceKind::kCuda:
      cuda::force_routing(stream, forced, layer, routing);
      return;
  }
}

}  // namespace rose::ops
