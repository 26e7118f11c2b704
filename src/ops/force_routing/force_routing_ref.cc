#include "ops/force_routing/force_routing.h"

namespace rose::ops::ref {

void force_routing(const ForcedRouting& forced, int layer, Routing& routing) {
  const auto k = static_cast<int>(routing.experts.size(1));
  for (std::int64_t row = 0; row < routing.experts.size(0); ++row) {
    choose_forced(forced.pattern(), static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(row), k,
                  routing.experts.row<std::int32_t>(row));
  }
}

}  // namespace rose::ops::ref
