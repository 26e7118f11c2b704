#include "ops/rope_append/rope_append_cuda.h"

#include <limits>

#include "device/cuda/gpu.h"
#include "ops/rope_append/rope_append_params.cuh"

namespace rose::ops::cuda {
namespace {

std::uint16_t* bits_of(const Tensor& tensor) { return reinterpret_cast<std::uint16_t*>(tensor.as<Bf16>()); }

}  // namespace

void rope_append(const Stream& stream, const Tensor& qkv, const Tensor& positions, const Tensor& slots,
                 const Rope& rope, KvLayer& kv, const Tensor& q) {
  if (q.size(0) == 0) return;
  const bool e4m3 = kv.keys.dtype() == DType::kF8E4M3;
  CHECK((e4m3 || kv.keys.dtype() == DType::kBf16) && q.size(2) == RopeAppendParams::kHeadDim && !rope.table.empty() &&
            rope.table.device() == stream.device() && rope.table.elements() == RopeAppendParams::kHeadDim / 2,
        "rope_append on {}: q {}, keys {}, {} frequencies", stream.device().name(), q.describe(), kv.keys.describe(),
        rope.table.elements());
  RopeAppendParams params{};
  params.qkv = bits_of(qkv);
  params.qkv_stride = qkv.stride(0);
  params.positions = positions.as<std::int32_t>();
  params.slots = slots.as<std::int32_t>();
  params.frequencies = rope.table.as<float>();
  params.concentration = rope.concentration;
  params.query_factor = rope.query_factor;
  params.q = bits_of(q);
  params.keys = kv.keys.raw();
  params.values = kv.values.raw();
  params.slots_all = kv.slots();
  params.rows = static_cast<int>(q.size(0));
  params.heads = static_cast<int>(q.size(1));
  params.kv_heads = static_cast<int>(kv.kv_heads());
  params.page_size = kv.page_size;
  const auto places = reinterpret_cast<std::uintptr_t>(params.qkv) | reinterpret_cast<std::uintptr_t>(params.q) |
                      reinterpret_cast<std::uintptr_t>(params.keys) | reinterpret_cast<std::uintptr_t>(params.values);
  CHECK(places % 16 == 0 && params.qkv_stride % 8 == 0 &&
            q.size(0) * qkv.size(1) / RopeAppendParams::kHeadDim < std::numeric_limits<std::int32_t>::max() / 8,
        "rope_append on {}: qkv {}, keys {}", stream.device().name(), qkv.describe(), kv.keys.describe());
  (e4m3 ? launch_rope_append_e4m3 : launch_rope_append)(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
