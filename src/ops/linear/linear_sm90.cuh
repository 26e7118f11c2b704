// y[rows, out] = x[rows, in] . W[out, in]^T + bias      bf16 operands, f32 accumulation, one rounding to bf16
//
// Bound: 2 * rows * out * in FLOPs on the tensor cores (measured 789 TFLOP/s on an H200); at 8192 x 5120 x 2880 that is
// 0.306 ms against 0.048 ms for the bytes.
//
// Mapping: a persistent grid, one block an SM, walks output tiles of kM x kN. In a block one producer thread keeps a
// ring of stages filled by TMA (x and W tiles, 64 wide along `in`: one 128-byte swizzled row); kM / 64 consumer
// warpgroups each own 64 rows of the tile and multiply with WGMMA, both operands from shared memory. The epilogue adds
// the bias, rounds, and stores through shared memory by TMA, 64 or 32 columns at a time, while the producer already
// loads the next tile.
#pragma once

#include <cuda.h>

#include "device/cuda/launch.cuh"
#include "ops/linear/linear_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

template <class Config>
struct alignas(1024) LinearShared {
  std::uint8_t x[Config::kStages][Config::kM * Config::kK * 2];
  std::uint8_t weight[Config::kStages][Config::kN * Config::kK * 2];
  std::uint8_t store[Config::kConsumers][2][Config::kStoreBytes];
  std::uint64_t full[Config::kStages];
  std::uint64_t empty[Config::kStages];
};

struct LinearTileIndex {
  int row;     // first row
  int column;  // first output feature
};

// Tile t of the walk: groups of kGroupRows row tiles go through all columns before the next group.
template <class Config>
__device__ inline LinearTileIndex linear_tile(int t, int row_tiles, int column_tiles) {
  const int group = t / (Config::kGroupRows * column_tiles);
  const int first = group * Config::kGroupRows;
  const int rows_in_group = min(Config::kGroupRows, row_tiles - first);
  const int within = t - first * column_tiles;
  return {(first + within % rows_in_group) * Config::kM, (within / rows_in_group) * Config::kN};
}

template <class Config>
__device__ inline void linear_produce(LinearShared<Config>& shared, const LinearParams& params, int row_tiles,
                                      int column_tiles) {
  const int steps = (params.in + Config::kK - 1) / Config::kK;
  ptx::Ring<Config::kStages> ring;
  for (int t = blockIdx.x; t < row_tiles * column_tiles; t += gridDim.x) {
    const LinearTileIndex tile = linear_tile<Config>(t, row_tiles, column_tiles);
    for (int step = 0; step < steps; ++step, ring.advance()) {
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      ptx::barrier_arrive_expect(&shared.full[ring.stage], Config::kStageBytes);
      ptx::tma_load_2d(&params.x, &shared.full[ring.stage], shared.x[ring.stage], step * Config::kK, tile.row);
      ptx::tma_load_2d(&params.weight, &shared.full[ring.stage], shared.weight[ring.stage], step * Config::kK,
                       tile.column, ptx::kEvictLast);
    }
  }
}

// One tile's products. A stage is handed back one step late: its WGMMAs are known to be done only then.
template <class Config>
__device__ inline void linear_multiply(LinearShared<Config>& shared, int consumer, int steps,
                                       ptx::Ring<Config::kStages>& ring, float (&sums)[Config::kN / 2]) {
  int previous = -1;
  for (int step = 0; step < steps; ++step, ring.advance()) {
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t x = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[ring.stage]) +
                                                       static_cast<std::uint32_t>(consumer * 64 * Config::kK * 2));
    const std::uint64_t weight = ptx::swizzle128_descriptor(ptx::shared_address(shared.weight[ring.stage]));
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Config::kK / 16; ++k) {
      ptx::WgmmaBf16<Config::kN>::ss(sums, x + 2 * k, weight + 2 * k, step != 0 || k != 0);
    }
    ptx::wgmma_commit();
    if (previous >= 0) {
      ptx::wgmma_wait<1>();
      ptx::barrier_arrive(&shared.empty[previous]);
    }
    previous = ring.stage;
  }
  ptx::wgmma_wait<0>();
  ptx::barrier_arrive(&shared.empty[previous]);
}

// Bias, rounding, and the store of 64 rows, one chunk of columns after the other through two buffers.
template <class Config>
__device__ inline void linear_store(LinearShared<Config>& shared, const LinearParams& params, int consumer,
                                    const LinearTileIndex& tile, const float (&sums)[Config::kN / 2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int barrier = 1 + consumer;
  const bool issues = threadIdx.x % 128 == 0;
#pragma unroll
  for (int chunk = 0; chunk < Config::kN / Config::kStoreColumns; ++chunk) {
    const int column = tile.column + chunk * Config::kStoreColumns;
    std::uint8_t* buffer = shared.store[consumer][chunk % 2];
    // The store of two chunks ago has left this buffer; where a tile has an odd number of them, the last one's, too.
    if (issues) chunk == 0 ? ptx::tma_store_wait_read<0>() : ptx::tma_store_wait_read<1>();
    ptx::named_sync(barrier, 128);
#pragma unroll
    for (int pair = 0; pair < Config::kStoreColumns / 16; ++pair) {  // two accumulator groups of 8 columns
      std::uint32_t packed[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* sum = &sums[(chunk * (Config::kStoreColumns / 8) + pair * 2 + half) * 4];
        const int c = column + (pair * 2 + half) * 8 + lane % 4 * 2;
        float low = 0, high = 0;
        if (params.bias != nullptr && c < params.out) {
          const std::uint32_t bias = *reinterpret_cast<const std::uint32_t*>(params.bias + c);
          low = ptx::bf16_low(bias);
          high = ptx::bf16_high(bias);
        }
        packed[half * 2] = ptx::pack_bf16(sum[0] + low, sum[1] + high);
        packed[half * 2 + 1] = ptx::pack_bf16(sum[2] + low, sum[3] + high);
      }
      // Lane l gives the address of row l % 16 of the warp's rows, columns 8 * (l / 16); in rows of 128 bytes, 16-byte
      // units are swizzled by row.
      const int row = warp * 16 + lane % 16, unit = pair * 2 + lane / 16;
      const int at = row * Config::kStoreColumns * 2 + (Config::kStoreSwizzled ? unit ^ row % 8 : unit) * 16;
      ptx::stmatrix_x4(ptx::shared_address(buffer) + static_cast<std::uint32_t>(at), packed[0], packed[1], packed[2],
                       packed[3]);
    }
    ptx::fence_async_shared();
    ptx::named_sync(barrier, 128);
    if (issues) {
      if (column < params.out) ptx::tma_store_2d(&params.y, buffer, column, tile.row + consumer * 64);
      ptx::tma_store_commit();
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) linear_kernel(const __grid_constant__ LinearParams params) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<LinearShared<Config>*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 * 1024);
  const int warpgroup = threadIdx.x / 128;
  const int row_tiles = (params.rows + Config::kM - 1) / Config::kM;
  const int column_tiles = (params.out + Config::kN - 1) / Config::kN;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], 128 * Config::kConsumers);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::dependents_launch();
  ptx::dependency_wait();

  if (warpgroup == 0) {  // producer
    ptx::registers_decrease<40>();
    if (threadIdx.x == 0) linear_produce<Config>(shared, params, row_tiles, column_tiles);
  } else {  // consumers
    ptx::registers_increase<232>();
    const int steps = (params.in + Config::kK - 1) / Config::kK;
    ptx::Ring<Config::kStages> ring;
    float sums[Config::kN / 2];
    for (int t = blockIdx.x; t < row_tiles * column_tiles; t += gridDim.x) {
      const LinearTileIndex tile = linear_tile<Config>(t, row_tiles, column_tiles);
      linear_multiply<Config>(shared, warpgroup - 1, steps, ring, sums);
      linear_store<Config>(shared, params, warpgroup - 1, tile, sums);
    }
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();  // shared memory must outlive the last store
  }
}

template <class Config>
void launch_linear(const LinearParams& params, int blocks, cudaStream_t stream) {
  rose::cuda::launch(&linear_kernel<Config>, "linear",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(Config::kThreads),
                      .shared_bytes = sizeof(LinearShared<Config>) + 1023,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
