// The kernel against the reference: the same ids, and nothing else written.
#include <gtest/gtest.h>

#include "ops/force_routing/force_routing.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

TEST(CudaForceRouting, EqualsTheReferenceAndLeavesTheRowsBeyond) {
  struct Sizes {
    int experts, rows, k;
  };
  Gpu gpu;
  for (const RoutingMode mode : {RoutingMode::kNatural, RoutingMode::kBalanced, RoutingMode::kSkewed}) {
    for (const auto [experts, rows, k] : {Sizes{128, 1, 4}, Sizes{128, 129, 4}, Sizes{32, 8192, 4}, Sizes{8, 40, 8},
                                          Sizes{256, 33, 32}, Sizes{1, 3, 1}, Sizes{6, 100, 2}, Sizes{4, 0, 2}}) {
      for (const int layer : {0, 35}) {
        const ForcedRouting forced(mode, experts);
        const OwnedTensor expected(DType::kI32, {rows + 2, k}), actual(DType::kI32, {rows + 2, k}, 0);
        const Tensor device = gpu.like(*expected);
        Routing on_host{.experts = expected->rows(0, rows), .weights = {}};
        Routing on_device{.experts = device.rows(0, rows), .weights = {}};
        force_routing(Stream::cpu(1), forced, layer, on_host);
        force_routing(gpu.stream, forced, layer, on_device);
        gpu.download(device, *actual);
        EXPECT_EQ(testing::bit_difference(*actual, *expected), "")
            << routing_mode_name(mode) << ": " << rows << " rows, " << k << " of " << experts << ", layer " << layer;
      }
    }
  }
}

}  // namespace
}  // namespace rose::ops
