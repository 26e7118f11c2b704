// Expert weights on a GPU for tests and benchmarks: payload, bias and prepared scales; no stored scales.
#pragma once

#include "ops/experts/experts_cuda.h"
#include "ops/testing/gpu.h"

namespace rose::ops::testing {

class GpuExperts {
 public:
  GpuExperts(Gpu& gpu, const Weight& gate_up, const Weight& down, std::int64_t first_expert = 0) : inexact_(zero(gpu)) {
    weights.gate_up = placed(gpu, gate_up, weights.gate_up_scales);
    weights.down = placed(gpu, down, weights.down_scales);
    weights.first_expert = first_expert;
  }
  int inexact_tiles(Gpu& gpu) const {
    OwnedTensor tiles(DType::kI32, {1});
    gpu.download(inexact_, *tiles);
    return tiles->as<std::int32_t>()[0];
  }

  ExpertWeights weights;

 private:
  static Tensor zero(Gpu& gpu) {
    const OwnedTensor none(DType::kI32, {1}, 0);
    return gpu.upload(*none);
  }
  Weight placed(Gpu& gpu, const Weight& given, ExpertScales& scales) {
    Weight weight = given.payload.device().is_cpu() ? gpu.upload(given) : given;
    const auto memory = [&](std::int64_t bytes) {
      return gpu.like(Tensor(nullptr, DType::kU8, Device{}, {std::max<std::int64_t>(bytes, 1)})).raw();
    };
    scales = cuda::prepare_scales(
        gpu.stream, weight, memory(cuda::expert_scale_bytes(given.format, given.experts, given.out, given.in)),
        memory(cuda::expert_base_bytes(given.experts, given.out, given.in)), inexact_.as<std::int32_t>());
    gpu.stream.synchronize();
    weight.scales = Tensor();
    return weight;
  }
  Tensor inexact_;
};

}  // namespace rose::ops::testing
