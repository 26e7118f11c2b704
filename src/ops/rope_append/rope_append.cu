// (x[t], x[t + 32]) rotated by position * frequency[t] and scaled by the concentration, for the heads of q and k;
// rotated k and plain v go to their slot of the cache.
//
// The angle is the f32 product, as the reference forms it (at position 131071 its last bit is 0.008 rad: a more exact
// product would be another angle).
//
// Bound: bytes, each read and written once. At 8192 rows of 80 heads 84 MB each way, 42 us at the measured copy rate of
// 3.98 TB/s.
//
// Mapping: a warp takes eight heads of one row. Each lane computes one of the row's 32 angles; four lanes share a head,
// each with eight pairs (16 bytes of the lower half, 16 of the upper), whose cosines and sines come by shuffles.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/turn.cuh"
#include "ops/rope_append/rope_append_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kPairs = 8;  // a lane's
constexpr int kHalf = RopeAppendParams::kHeadDim / 2;
constexpr int kLanesHead = kHalf / kPairs;
static_assert(kHalf == 32, "an angle a lane");
static_assert(kLanesHead * RopeAppendParams::kWarpHeads == 32);

__device__ inline void unpack(const uint4& bits, float (&x)[kPairs]) {
  x[0] = ptx::bf16_low(bits.x), x[1] = ptx::bf16_high(bits.x);
  x[2] = ptx::bf16_low(bits.y), x[3] = ptx::bf16_high(bits.y);
  x[4] = ptx::bf16_low(bits.z), x[5] = ptx::bf16_high(bits.z);
  x[6] = ptx::bf16_low(bits.w), x[7] = ptx::bf16_high(bits.w);
}

__device__ inline uint4 pack(const float (&x)[kPairs]) {
  return {ptx::pack_bf16(x[0], x[1]), ptx::pack_bf16(x[2], x[3]), ptx::pack_bf16(x[4], x[5]),
          ptx::pack_bf16(x[6], x[7])};
}

// The cache is rounded from f32, once.
__device__ inline uint2 pack_e4m3(const float (&x)[kPairs]) {
  const auto four = [&](int i) {
    return static_cast<std::uint32_t>(ptx::pack_e4m3(x[i], x[i + 1])) |
           static_cast<std::uint32_t>(ptx::pack_e4m3(x[i + 2], x[i + 3])) << 16;
  };
  return {four(0), four(4)};
}

// Where head `head` of row `row` goes, in a cache of T; null: nowhere.
template <class T>
__device__ inline void* target_of(const RopeAppendParams& params, std::int64_t row, int head, int slot) {
  if (head < params.heads) return params.q + (row * params.heads + head) * RopeAppendParams::kHeadDim;
  if (slot < 0 || slot >= params.slots_all) return nullptr;
  const bool is_key = head < params.heads + params.kv_heads;
  const int kv_head = head - params.heads - (is_key ? 0 : params.kv_heads);
  const std::int64_t page = slot / params.page_size;
  const std::int64_t at = (page * params.kv_heads + kv_head) * params.page_size + slot % params.page_size;
  return static_cast<T*>(is_key ? params.keys : params.values) + at * RopeAppendParams::kHeadDim;
}

template <class T>
__device__ inline void rope_append_heads(const RopeAppendParams& params, std::int64_t row, int first_head,
                                         float frequency) {
  const int lane = threadIdx.x % 32, unit = lane % kLanesHead;
  const int head = first_head + lane / kLanesHead;
  const bool inside = head < params.heads + 2 * params.kv_heads;
  uint4 low_bits = {0, 0, 0, 0}, high_bits = {0, 0, 0, 0};
  if (inside) {
    const std::uint16_t* from =
        params.qkv + row * params.qkv_stride + head * RopeAppendParams::kHeadDim + unit * kPairs;
    low_bits = *reinterpret_cast<const uint4*>(from);
    high_bits = *reinterpret_cast<const uint4*>(from + kHalf);
  }
  const int slot = params.slots[row];
  const ptx::Turn turn = ptx::turn_of(__fmul_rn(static_cast<float>(params.positions[row]), frequency));
  const float own_cosine = params.concentration * turn.cosine, own_sine = params.concentration * turn.sine;

  float low[kPairs], high[kPairs];
  unpack(low_bits, low);
  unpack(high_bits, high);
  const bool rotates = head < params.heads + params.kv_heads;
  const float factor = head < params.heads ? params.query_factor : 1.f;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float cosine = __shfl_sync(0xffffffffu, own_cosine, unit * kPairs + i);
    const float sine = __shfl_sync(0xffffffffu, own_sine, unit * kPairs + i);
    const float x = low[i], y = high[i];
    low[i] = rotates ? (x * cosine - y * sine) * factor : x;
    high[i] = rotates ? (y * cosine + x * sine) * factor : y;
  }
  void* target = inside ? target_of<T>(params, row, head, slot) : nullptr;
  if (target == nullptr) return;
  if (sizeof(T) == 1 && head >= params.heads) {
    auto* to = static_cast<std::uint8_t*>(target) + unit * kPairs;
    *reinterpret_cast<uint2*>(to) = pack_e4m3(low);
    *reinterpret_cast<uint2*>(to + kHalf) = pack_e4m3(high);
    return;
  }
  auto* to = static_cast<std::uint16_t*>(target);
  *reinterpret_cast<uint4*>(to + unit * kPairs) = pack(low);
  *reinterpret_cast<uint4*>(to + kHalf + unit * kPairs) = pack(high);
}

template <class T>  // of the cache's elements: 16 bits of bf16, 8 of e4m3
__global__ void __launch_bounds__(RopeAppendParams::kThreads)
    rope_append_kernel(const __grid_constant__ RopeAppendParams params) {
  const float frequency = params.frequencies[threadIdx.x % 32];  // no kernel writes it: need not wait
  ptx::dependency_wait();
  ptx::dependents_launch();  // attention may start to read the older positions
  const int groups =
      (params.heads + 2 * params.kv_heads + RopeAppendParams::kWarpHeads - 1) / RopeAppendParams::kWarpHeads;
  const int warp = blockIdx.x * (RopeAppendParams::kThreads / 32) + threadIdx.x / 32;
  const int row = warp / groups;
  if (row < params.rows) {
    rope_append_heads<T>(params, row, warp % groups * RopeAppendParams::kWarpHeads, frequency);
  }
}

template <class T>
void launch(const RopeAppendParams& params, cudaStream_t stream) {
  constexpr int kWarps = RopeAppendParams::kThreads / 32;
  const int groups =
      (params.heads + 2 * params.kv_heads + RopeAppendParams::kWarpHeads - 1) / RopeAppendParams::kWarpHeads;
  rose::cuda::launch(&rope_append_kernel<T>, "rope_append",
                     {.grid = dim3(static_cast<unsigned>((params.rows * groups + kWarps - 1) / kWarps)),
                      .block = dim3(RopeAppendParams::kThreads),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace

void launch_rope_append(const RopeAppendParams& params, cudaStream_t stream) { launch<std::uint16_t>(params, stream); }
void launch_rope_append_e4m3(const RopeAppendParams& params, cudaStream_t stream) {
  launch<std::uint8_t>(params, stream);
}

}  // namespace rose::ops::cuda
