// Routing in place of the router's choice, for benchmarks: how a step's time depends on the division of its rows over
// the experts. The ids are replaced, the weights stay as they were routed.
//
//   natural    as routed
//   balanced   expert of (row r, choice j) = ((r * k + j + 7 * layer) * stride) mod experts, stride prime to experts:
//              distinct within a row, and no expert has more than one row more than another
//   skewed     P(rank) ~ (rank + 1)^-1.2, drawn by a hash of (row, j, layer), again until it is new in its row;
//              expert = ((rank + 7 * layer) * stride) mod experts, so that layers have other favourites
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "device/stream.h"
#include "ops/force_routing/pattern.h"
#include "ops/route/route.h"

namespace rose::ops {

//   X(enumerator, "name")
#define ROSE_ROUTING_MODES(X) \
  X(kNatural, "natural")      \
  X(kBalanced, "balanced")    \
  X(kSkewed, "skewed")

enum class RoutingMode : std::uint8_t {
#define ROSE_X(enumerator, name) enumerator,
  ROSE_ROUTING_MODES(ROSE_X)
#undef ROSE_X
};

std::string_view routing_mode_name(RoutingMode mode);
std::optional<RoutingMode> routing_mode_from_name(std::string_view name);

// What one model needs for all its layers: made once, at start. experts: all of the model's, up to 256.
class ForcedRouting {
 public:
  ForcedRouting() = default;  // natural
  ForcedRouting(RoutingMode mode, int experts);

  RoutingMode mode() const { return mode_; }
  const RoutingPattern& pattern() const { return pattern_; }

 private:
  RoutingMode mode_ = RoutingMode::kNatural;
  RoutingPattern pattern_{};
};

// Between route and experts. Rows count from the step's first. Does nothing for natural.
void force_routing(const Stream& stream, const ForcedRouting& forced, int layer, Routing& routing);

namespace ref {
void force_routing(const ForcedRouting& forced, int layer, Routing& routing);
}  // namespace ref

}  // namespace rose::ops
