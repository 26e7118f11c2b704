// y[rows, out] = x[rows, in] . W[out, in]^T + bias      e4m3 operands with scales, many rows
//
// x has a scale for a row's 128 columns, W one for 128 x 128 elements. The four WGMMAs of a step of 128 go into a fresh
// accumulator, which is added in f32 with both scales: FP8 WGMMA keeps too few bits to accumulate over all of `in`.
//
// Bound: 2 * rows * out * in FLOPs at the FP8 rate (measured 1386 TFLOP/s on an H200): 0.174 ms for 8192 x 5120 x 2880.
//
// Mapping: as in linear_sm90.cuh: a persistent grid walks tiles of 128 rows x kN features; one thread loads by TMA, two
// warpgroups have 64 rows each. While one of them adds, the other's products run.
#pragma once

#include <cuda.h>

#include "device/cuda/launch.cuh"
#include "ops/linear/linear_fp8_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {
namespace {

template <class Config>
struct alignas(1024) Fp8Shared {
  std::uint8_t x[Config::kStages][Config::kM * Config::kK];
  std::uint8_t weight[Config::kStages][Config::kN * Config::kK];
  alignas(128) float x_scales[Config::kStages][Config::kM];
  alignas(16) std::uint8_t store[Config::kStoreBytes];
  std::uint64_t full[Config::kStages];
  std::uint64_t empty[Config::kStages];
};

struct Fp8Tile {
  int row, column;
};

// Tile t of the walk: groups of kGroupRows row tiles go through all columns before the next group.
template <class Config>
__device__ inline Fp8Tile fp8_tile(int t, int row_tiles, int column_tiles) {
  const int first = t / (Config::kGroupRows * column_tiles) * Config::kGroupRows;
  const int rows_in_group = min(Config::kGroupRows, row_tiles - first);
  const int within = t - first * column_tiles;
  return {(first + within % rows_in_group) * Config::kM, within / rows_in_group * Config::kN};
}

template <class Config>
__device__ inline void fp8_produce(Fp8Shared<Config>& shared, const LinearFp8Params& params, int row_tiles,
                                   int column_tiles) {
  const int steps = (params.in + Config::kK - 1) / Config::kK;
  ptx::Ring<Config::kStages> ring;
  for (int t = blockIdx.x; t < row_tiles * column_tiles; t += gridDim.x) {
    const Fp8Tile tile = fp8_tile<Config>(t, row_tiles, column_tiles);
    for (int step = 0; step < steps; ++step, ring.advance()) {
      std::uint64_t* full = &shared.full[ring.stage];
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      ptx::barrier_arrive_expect(full, Config::kStageBytes);
      ptx::tma_load_2d(&params.x, full, shared.x[ring.stage], step * Config::kK, tile.row);
      ptx::tma_load_2d(&params.weight, full, shared.weight[ring.stage], step * Config::kK, tile.column,
                       ptx::kEvictLast);
      ptx::tma_load_2d(&params.x_scales, full, shared.x_scales[ring.stage], tile.row, step);
    }
  }
}

// One tile's sums: rows lane / 4 and + 8 of the warp's 16. Columns from `boundary` on have the next scale of W.
template <class Config>
__device__ inline void fp8_multiply(Fp8Shared<Config>& shared, const LinearFp8Params& params, int column,
                                    ptx::Ring<Config::kStages>& ring, float (&sums)[Config::kN / 2]) {
  const int consumer = threadIdx.x / 128 - 1, steps = (params.in + Config::kK - 1) / Config::kK;
  const int row = consumer * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  const int block = column / 128, boundary = (block + 1) * 128 - column;
  const int blocks = (params.out + 127) / 128;
  const float* scales = params.weight_scales + static_cast<long>(block) * steps;
  const float* next_scales = scales + (block + 1 < blocks ? steps : 0);
#pragma unroll
  for (int i = 0; i < Config::kN / 2; ++i) sums[i] = 0;
  float coming = scales[0], next_coming = next_scales[0];
  for (int step = 0; step < steps; ++step, ring.advance()) {
    const float weight_scale = coming, next_weight_scale = next_coming;
    if (step + 1 < steps) coming = scales[step + 1], next_coming = next_scales[step + 1];
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t x = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[ring.stage]) +
                                                       static_cast<std::uint32_t>(consumer * 64 * Config::kK));
    const std::uint64_t weight = ptx::swizzle128_descriptor(ptx::shared_address(shared.weight[ring.stage]));
    float products[Config::kN / 2];
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::WgmmaE4m3<Config::kN>::ss(products, x + 2 * k, weight + 2 * k, k != 0);
    ptx::wgmma_commit();
    const float low = shared.x_scales[ring.stage][row], high = shared.x_scales[ring.stage][row + 8];
    const float first[2] = {low * weight_scale, low * next_weight_scale};
    const float second[2] = {high * weight_scale, high * next_weight_scale};
    ptx::wgmma_wait<0>();
    ptx::barrier_arrive(&shared.empty[ring.stage]);
#pragma unroll
    for (int group = 0; group < Config::kN / 8; ++group) {
      const bool next = group * 8 >= boundary;
      const float a = next ? first[1] : first[0], b = next ? second[1] : second[0];
      sums[4 * group] += products[4 * group] * a;
      sums[4 * group + 1] += products[4 * group + 1] * a;
      sums[4 * group + 2] += products[4 * group + 2] * b;
      sums[4 * group + 3] += products[4 * group + 3] * b;
    }
  }
}

__device__ inline void fp8_store_one(const LinearFp8Params& params, int row, int column, float value) {
  if (row >= params.rows || column >= params.out) return;
  const long at = row * params.y_stride + column;
  if (params.y_is_f32) {
    static_cast<float*>(params.y)[at] = value;
  } else {
    static_cast<std::uint16_t*>(params.y)[at] = static_cast<std::uint16_t>(ptx::pack_bf16(value, 0));
  }
}

// A warp's 16 rows, 32 columns at a time through its own piece of shared memory, so that stores are 16 bytes wide.
template <class Config>
__device__ inline void fp8_store_bf16(Fp8Shared<Config>& shared, const LinearFp8Params& params, int row, int column,
                                      const float (&sums)[Config::kN / 2]) {
  const int lane = threadIdx.x % 32;
  std::uint8_t* buffer = shared.store + (threadIdx.x / 32 - 4) * 16 * Config::kStoreRow;
  const std::uint32_t to = ptx::shared_address(buffer) + lane % 16 * Config::kStoreRow + lane / 16 * 16;
#pragma unroll
  for (int chunk = 0; chunk < Config::kN / Config::kStoreColumns; ++chunk) {
    __syncwarp();  // the chunk before has been read
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float* sum = &sums[(chunk * 4 + pair * 2) * 4];
      ptx::stmatrix_x4(to + pair * 32, ptx::pack_bf16(sum[0], sum[1]), ptx::pack_bf16(sum[2], sum[3]),
                       ptx::pack_bf16(sum[4], sum[5]), ptx::pack_bf16(sum[6], sum[7]));
    }
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = half * 8 + lane / 4, c = column + chunk * Config::kStoreColumns + lane % 4 * 8;
      const uint4 piece = *reinterpret_cast<const uint4*>(buffer + r * Config::kStoreRow + lane % 4 * 16);
      if (row + r < params.rows && c < params.out) {
        *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(params.y) + (row + r) * params.y_stride + c) = piece;
      }
    }
  }
}

template <class Config>
__device__ inline void fp8_store(Fp8Shared<Config>& shared, const LinearFp8Params& params, const Fp8Tile& tile,
                                 float (&sums)[Config::kN / 2]) {
  const int lane = threadIdx.x % 32, row = tile.row + (threadIdx.x / 32 - 4) * 16;
  if (params.bias != nullptr) {
#pragma unroll
    for (int group = 0; group < Config::kN / 8; ++group) {
      const int column = tile.column + group * 8 + lane % 4 * 2;
      const float low = column < params.out ? ptx::bf16_to_float(params.bias[column]) : 0.f;
      const float high = column + 1 < params.out ? ptx::bf16_to_float(params.bias[column + 1]) : 0.f;
      sums[4 * group] += low, sums[4 * group + 2] += low;
      sums[4 * group + 1] += high, sums[4 * group + 3] += high;
    }
  }
  if (params.y_pieces) return fp8_store_bf16<Config>(shared, params, row, tile.column, sums);
#pragma unroll
  for (int i = 0; i < Config::kN / 2; ++i) {
    fp8_store_one(params, row + lane / 4 + i % 4 / 2 * 8, tile.column + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[i]);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    linear_fp8_kernel(const __grid_constant__ LinearFp8Params params) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<Fp8Shared<Config>*>(raw + (1024 - ptx::shared_address(raw) % 1024) % 1024);
  const int row_tiles = (params.rows + Config::kM - 1) / Config::kM;
  const int column_tiles = (params.out + Config::kN - 1) / Config::kN;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], 256);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == 0) {
      ptx::dependents_launch();
      ptx::dependency_wait();
      fp8_produce<Config>(shared, params, row_tiles, column_tiles);
    }
  } else {
    ptx::registers_increase<232>();
    ptx::Ring<Config::kStages> ring;
    float sums[Config::kN / 2];
    for (int t = blockIdx.x; t < row_tiles * column_tiles; t += gridDim.x) {
      const Fp8Tile tile = fp8_tile<Config>(t, row_tiles, column_tiles);
      fp8_multiply<Config>(shared, params, tile.column, ring, sums);
      fp8_store<Config>(shared, params, tile, sums);
    }
  }
}

}  // namespace

template <class Config>
void launch_linear_fp8(const LinearFp8Params& params, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&linear_fp8_kernel<Config>, "linear_fp8",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(Config::kThreads),
                      .shared_bytes = sizeof(Fp8Shared<Config>) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
