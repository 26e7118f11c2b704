#include "ops/route/route_cuda.h"

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "ops/linear/linear_swapped_cuda.h"
#include "ops/route/route_params.cuh"

namespace rose::ops::cuda {
namespace {

// Beyond these, tiles of 64 rows fill the GPU without splitting `in`.
constexpr int kRowsOfLinear = 2048;

RouteLogits logits_params(const Stream& stream, const Tensor& x, const Weight& router, void* logits) {
  CHECK(router.in % 8 == 0 && x.stride(0) % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0 &&
            reinterpret_cast<std::uintptr_t>(router.payload.raw()) % 16 == 0,
        "route on {}: {} wide rows, {} apart, or an address that is no multiple of 16 bytes", stream.device().name(),
        router.in, x.stride(0));
  RouteLogits params{};
  params.x = static_cast<const std::uint16_t*>(x.raw());
  params.weight = static_cast<const std::uint16_t*>(router.payload.raw());
  params.bias = router.bias.empty() ? nullptr : static_cast<const std::uint16_t*>(router.bias.raw());
  params.logits = static_cast<float*>(logits);
  params.x_stride = x.stride(0);
  params.rows = static_cast<int>(x.size(0));
  params.experts = static_cast<int>(router.out);
  params.in = static_cast<int>(router.in);
  return params;
}

RouteChoice choice_params(const Stream& stream, const Tensor& logits, const Routing& routing) {
  RouteChoice params{};
  params.logits = logits.as<float>();
  params.chosen = routing.experts.as<std::int32_t>();
  params.weights = routing.weights.as<float>();
  params.chosen_stride = routing.experts.stride(0);
  params.weights_stride = routing.weights.stride(0);
  params.rows = static_cast<int>(logits.size(0));
  params.experts = static_cast<int>(logits.size(1));
  params.k = static_cast<int>(routing.experts.size(1));
  CHECK(params.experts <= RouteChoice::kExpertsMax && params.k <= RouteChoice::kChosenMax && params.k <= params.experts,
        "route on {}: {} of {} experts", stream.device().name(), params.k, params.experts);
  return params;
}

bool few(const RouteLogits& params) {
  constexpr int kInMax = 1 << 16;  // keeps the sizes within int
  return params.rows <= RouteFewShape::rows_max(params.experts) && params.in <= kInMax &&
         RouteFewShape::shared_bytes(params.rows, params.experts, params.in) <= RouteFewShape::kSharedMax;
}

}  // namespace

std::size_t route_scratch_bytes(std::int64_t rows, std::int64_t experts) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(experts) * sizeof(float);
}

void choose_experts(const Stream& stream, const Tensor& logits, Routing& routing) {
  const RouteChoice params = choice_params(stream, logits, routing);
  if (params.rows == 0) return;
  launch_route_choice(params, rose::cuda::native_stream(stream));
}

void route(const Stream& stream, const Tensor& x, const Weight& router, Routing& routing, void* scratch) {
  CHECK(router.format == WeightFormat::kBf16 && x.dtype() == DType::kBf16, "route on {}: {} weights, x {}",
        stream.device().name(), weight_format_name(router.format), x.describe());
  if (x.size(0) == 0) return;
  const RouteLogits params = logits_params(stream, x, router, scratch);
  const Tensor logits(scratch, DType::kF32, x.device(), {x.size(0), router.out});
  if (few(params)) {
    launch_route_few(params, choice_params(stream, logits, routing), rose::cuda::native_stream(stream));
    return;
  }
  if (params.rows <= kRowsOfLinear) {
    linear_swapped(stream, x, router, logits);
  } else {
    launch_route_logits(params, rose::cuda::multiprocessors(stream), rose::cuda::native_stream(stream));
  }
  choose_experts(stream, logits, routing);
}

}  // namespace rose::ops::cuda
