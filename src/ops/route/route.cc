#include "ops/route/route.h"

#include "ops/check.h"
#include "ops/linear/linear.h"
#include "ops/route/route_cuda.h"
#include "ops/scratch.h"

namespace rose::ops {

void route(const Stream& stream, const Tensor& x, const Weight& router, Routing& routing) {
  check_weight(stream, "route: router", router);
  CHECK(router.experts == 0, "route: a router of {} experts' weights", router.experts);
  check_activations(stream, "route: x", x, -1, router.in);
  check_tensor(stream, "route: experts", routing.experts, {DType::kI32}, {x.size(0), -1});
  const std::int64_t per_token = routing.experts.size(1);
  check_tensor(stream, "route: weights", routing.weights, {DType::kF32}, {x.size(0), per_token});
  CHECK(per_token > 0 && per_token <= router.out, "route: {} of {} experts", per_token, router.out);
  switch (stream.device().kind) {
    case DeviceKind::kCpu: {
      if (x.size(0) == 0) return;
      thread_local Scratch scratch;
      // Never rounded to bf16: that would flip experts whose logits lie close together.
      const Tensor logits(scratch.floats(x.size(0) * router.out), DType::kF32, x.device(), {x.size(0), router.out});
      linear(stream, x, router, logits);
      ref::choose_experts(stream, logits, routing);
      return;
    }
    case DeviceKind::kCuda:
      check_tensor(stream, "route: logits", routing.logits, {DType::kF32}, {x.size(0), router.out});
      cuda::route(stream, x, router, routing, routing.logits.raw());
      return;
  }
}

}  // namespace rose::ops
