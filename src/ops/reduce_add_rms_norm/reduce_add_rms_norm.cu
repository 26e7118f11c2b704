// residual += delta;  out = residual / sqrt(mean(residual^2) + epsilon) * weight
// and, where asked for, q = e4m3(out / scale) with scale = (largest |out| of 128 columns) / 448
//
// f32 throughout. The norm is of the residual as stored, the quantization of the output as rounded to bf16.
//
// Bound: bytes. At 8192 rows of 2880 and a bf16 residual, delta and residual read, residual and out written: 189 MB,
// 47 us at the measured copy rate of 3.98 TB/s; with an f32 residual 283 MB, 71 us; q adds 24 MB.
//
// Mapping: a block a row, eight columns a thread, which stay in its registers from the first load to the last store.
// The row's sum goes through one shuffle tree a warp and one line of shared memory. Half a warp holds the 128 columns
// of a scale.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kColumns = 8;  // a thread's
constexpr int kThreadsMax = AddRmsNormParams::kHiddenMax / kColumns;

__device__ inline void unpack(const uint4& bits, float (&x)[kColumns]) {
  x[0] = ptx::bf16_low(bits.x), x[1] = ptx::bf16_high(bits.x);
  x[2] = ptx::bf16_low(bits.y), x[3] = ptx::bf16_high(bits.y);
  x[4] = ptx::bf16_low(bits.z), x[5] = ptx::bf16_high(bits.z);
  x[6] = ptx::bf16_low(bits.w), x[7] = ptx::bf16_high(bits.w);
}

__device__ inline uint4 pack(const float (&x)[kColumns]) {
  return {ptx::pack_bf16(x[0], x[1]), ptx::pack_bf16(x[2], x[3]), ptx::pack_bf16(x[4], x[5]),
          ptx::pack_bf16(x[6], x[7])};
}

__device__ inline uint4 load_16(const void* from) { return *static_cast<const uint4*>(from); }

// Each thread's eight floats at row[8 * threadIdx.x]. Two plain 16-byte stores would each fill half of every 32-byte
// sector; neighbours swap halves first, so that both fill whole ones. All threads of the warp take part.
__device__ inline void store_f32(float* row, int columns, const float (&x)[kColumns]) {
  const bool odd = threadIdx.x % 2 != 0;
  float first[4], second[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[4 + i], 1);
    first[i] = odd ? other : x[i];
    second[i] = odd ? x[4 + i] : other;
  }
  const int even_column = static_cast<int>(threadIdx.x / 2) * 2 * kColumns;
  float* to = row + even_column + (odd ? 4 : 0);
  if (even_column < columns) *reinterpret_cast<float4*>(to) = {first[0], first[1], first[2], first[3]};
  if (even_column + kColumns < columns) {
    *reinterpret_cast<float4*>(to + kColumns) = {second[0], second[1], second[2], second[3]};
  }
}

__device__ inline float block_sum(float value) {
  __shared__ float sums[kThreadsMax / 32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (lane == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = lane < warps ? sums[lane] : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

// Quantizes the half warp's 128 columns; threads beyond the row hold zeros and write nothing.
__device__ inline void store_quantized(const AddRmsNormParams& params, std::int64_t row, int column, bool inside,
                                       const float (&x)[kColumns]) {
  static_assert(AddRmsNormParams::kGroup == 16 * kColumns);
  uint2 packed;
  const float scale = ptx::quantize_half_warp(x, packed);
  if (!inside) return;
  *reinterpret_cast<uint2*>(params.q + row * params.q_stride + column) = packed;
  if (column % AddRmsNormParams::kGroup == 0) {
    params.scales[column / AddRmsNormParams::kGroup * params.scales_stride + row] = scale;
  }
}

template <bool kResidualF32, bool kQuantize>
__global__ void __launch_bounds__(kThreadsMax) add_rms_norm_kernel(const __grid_constant__ AddRmsNormParams params) {
  const std::int64_t row = blockIdx.x;
  const int column = threadIdx.x * kColumns;
  const bool inside = column < params.hidden;
  uint4 weight_bits = {0, 0, 0, 0};
  if (inside) weight_bits = load_16(params.weight + column);  // no kernel writes it: need not wait
  ptx::dependents_launch();
  ptx::dependency_wait();

  uint4 delta_bits = {0, 0, 0, 0};
  if (inside && params.delta != nullptr) delta_bits = load_16(params.delta + row * params.delta_stride + column);
  float x[kColumns] = {0, 0, 0, 0, 0, 0, 0, 0}, delta[kColumns];
  if constexpr (kResidualF32) {
    float* residual = static_cast<float*>(params.residual) + row * params.residual_stride;
    if (inside) {
      const float4 low = *reinterpret_cast<const float4*>(residual + column);
      const float4 high = *reinterpret_cast<const float4*>(residual + column + 4);
      x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
      x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    }
    if (params.delta != nullptr) {
      unpack(delta_bits, delta);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) x[i] += delta[i];
      store_f32(residual, params.hidden, x);
    }
  } else {
    std::uint16_t* residual = static_cast<std::uint16_t*>(params.residual) + row * params.residual_stride;
    if (inside) unpack(load_16(residual + column), x);
    if (params.delta != nullptr) {
      unpack(delta_bits, delta);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) x[i] += delta[i];
      const uint4 stored = pack(x);
      if (inside) *reinterpret_cast<uint4*>(residual + column) = stored;
      unpack(stored, x);
    }
  }

  float squares = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) squares += x[i] * x[i];
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(params.hidden) + params.epsilon);
  float weight[kColumns];
  unpack(weight_bits, weight);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) x[i] = x[i] * scale * weight[i];
  const uint4 rounded = pack(x);
  if (inside) *reinterpret_cast<uint4*>(params.out + row * params.out_stride + column) = rounded;
  if constexpr (kQuantize) {
    unpack(rounded, x);
    store_quantized(params, row, column, inside, x);
  }
}

}  // namespace

void launch_add_rms_norm(const AddRmsNormParams& params, cudaStream_t stream) {
  const bool quantizes = params.q != nullptr;
  auto* kernel = params.residual_f32
                     ? (quantizes ? &add_rms_norm_kernel<true, true> : &add_rms_norm_kernel<true, false>)
                     : (quantizes ? &add_rms_norm_kernel<false, true> : &add_rms_norm_kernel<false, false>);
  const int warps = (params.hidden + 32 * kColumns - 1) / (32 * kColumns);
  rose::cuda::launch(kernel, "add_rms_norm",
                     {.grid = dim3(static_cast<unsigned>(params.rows)),
                      .block = dim3(static_cast<unsigned>(warps) * 32),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
