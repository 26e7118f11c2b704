// q = e4m3(w / 2^e) with the smallest e in [-126, 127] for which the largest |w| of a 128 x 128 tile is at most 448 2^e
//
// Bound: bytes, 2 read and 1 written a value; a model's matrices are made once, at start.
//
// Mapping: a block a tile, which it holds in registers between the maximum and the rounding: eight columns and every
// sixteenth row a thread. Magnitudes of bf16 order as whole numbers, infinities and NaNs last.
#include "device/cuda/launch.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/quantize_weight/quantize_weight_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kTile = 128;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8;                              // of a thread
constexpr int kRowStep = kThreads / (kTile / kColumns);  // from a thread's row to its next
constexpr int kRows = kTile / kRowStep;                  // of a thread
constexpr std::uint32_t kInfinity = 0x7f80;              // and from here on NaNs
constexpr int kExponentMin = -126;

// largest = (1 + m / 128) 2^(b - 127), and 448 = 1.75 2^8. Below 2^-126 the exponent is the least one anyway.
__device__ int tile_exponent(std::uint32_t largest) {
  if (largest == 0) return 0;
  const int biased = static_cast<int>(largest >> 7), mantissa = static_cast<int>(largest & 0x7f);
  return max(biased - 127 - (mantissa <= 0x60 ? 8 : 7), kExponentMin);
}

__device__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

__global__ void __launch_bounds__(kThreads) quantize_weight_kernel(const QuantizeWeightParams params) {
  __shared__ std::uint32_t largest_of_warp[kWarps];
  const int column =
      static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x % (kTile / kColumns)) * kColumns;
  const int first_row = static_cast<int>(blockIdx.y) * kTile + static_cast<int>(threadIdx.x / (kTile / kColumns));
  uint4 values[kRows];
  std::uint32_t largest = 0;
  int not_finite = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = first_row + i * kRowStep;
    values[i] = {0, 0, 0, 0};
    if (row < params.out && column < params.in) {
      values[i] = *reinterpret_cast<const uint4*>(params.from + static_cast<long>(row) * params.in + column);
    }
#pragma unroll
    for (const std::uint32_t pair : {values[i].x, values[i].y, values[i].z, values[i].w}) {
      const std::uint32_t low = pair & 0x7fffu, high = (pair >> 16) & 0x7fffu;
      largest = max(largest, max(low, high));
      not_finite += static_cast<int>(low >= kInfinity) + static_cast<int>(high >= kInfinity);
    }
  }
  if (not_finite > 0) atomicAdd(params.not_finite, not_finite);
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) largest_of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) largest = max(largest, largest_of_warp[warp]);

  const int exponent = tile_exponent(largest);
  const float inverse = power_of_two(-exponent);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = first_row + i * kRowStep;
    if (row >= params.out || column >= params.in) continue;
    const auto packed = [&](std::uint32_t a, std::uint32_t b) {
      const std::uint32_t low = ptx::pack_e4m3(ptx::bf16_low(a) * inverse, ptx::bf16_high(a) * inverse);
      const std::uint32_t high = ptx::pack_e4m3(ptx::bf16_low(b) * inverse, ptx::bf16_high(b) * inverse);
      return low | high << 16;
    };
    *reinterpret_cast<uint2*>(params.payload + static_cast<long>(row) * params.in + column) = {
        packed(values[i].x, values[i].y), packed(values[i].z, values[i].w)};
  }
  if (threadIdx.x == 0) {
    params.scales[static_cast<long>(blockIdx.y) * gridDim.x + blockIdx.x] = power_of_two(exponent);
  }
}

}  // namespace

void launch_quantize_weight(const QuantizeWeightParams& params, cudaStream_t stream) {
  const auto tiles = [](int size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  rose::cuda::launch(&quantize_weight_kernel, "quantize_weight",
                     {.grid = dim3(tiles(params.in), tiles(params.out)), .block = dim3(kThreads)}, stream, params);
}

}  // namespace rose::ops::cuda
