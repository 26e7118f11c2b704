// y[rows, out] = x[rows, in] . W[out, in]^T + bias      up to 128 rows, bf16, f32 sums, one rounding
//
// Bound: the bytes of W, 6.5 us for 5120 x 2880 on an H200; beside them every tile takes all of x from L2.
//
// Mapping: rows are the M of WGMMA (a warpgroup has 64), features its N. A cluster of two blocks has a tile of
// kFeatures, each block half of the steps along `in`: the sums that blocks exchange cost more than x read again, so
// tiles are narrow and halves are enough. Each block adds up half of the features: it has its own sums in registers and
// gets the other's in its shared memory.
//
// Rows of a tile that do not exist are never loaded: what lies in their place makes sums that nobody stores.
//
// The first stages of W are under way before the previous kernel has ended; only x depends on it.
#pragma once

#include "device/cuda/launch.cuh"
#include "ops/linear/linear_batch_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/cluster.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {

template <class Config>
struct alignas(1024) LinearBatchShared {
  std::uint8_t x[Config::kStages][Config::kXBytes];
  std::uint8_t weight[Config::kStages][Config::kWeightBytes];
  alignas(16) std::uint8_t received[Config::kReceivedBytes];
  std::uint64_t full[Config::kStages];
  std::uint64_t empty[Config::kStages];
  std::uint64_t sums_here;  // counts the bytes of the sums that other blocks store in `received`
};

struct LinearBatchSteps {
  int begin, end;
};
__device__ inline LinearBatchSteps linear_batch_steps(const LinearBatchParams& params) {
  const int half = params.steps / 2;
  return ptx::cluster_rank() == 0 ? LinearBatchSteps{0, half} : LinearBatchSteps{half, params.steps};
}
template <class Config>
__device__ inline int linear_batch_feature() {
  return static_cast<int>(blockIdx.x) / 2 * Config::kFeatures;
}
// Warps with rows.
__device__ inline int linear_batch_warps(const LinearBatchParams& params) { return (params.rows + 15) / 16; }

// One thread.
template <class Config>
__device__ inline void linear_batch_produce(LinearBatchShared<Config>& shared, const LinearBatchParams& params) {
  const auto [begin, end] = linear_batch_steps(params);
  const int early = min(begin + Config::kStages, end), feature = linear_batch_feature<Config>();
  const auto load_weight = [&](int stage, int step) {
    ptx::barrier_arrive_expect(&shared.full[stage], Config::kWeightBytes + params.rows * Config::kStepColumns * 2);
    ptx::tma_load_2d(&params.weight, &shared.full[stage], shared.weight[stage], step * Config::kStepColumns, feature,
                     ptx::kEvictFirst);
  };
  const auto load_x = [&](int stage, int step) {
    ptx::tma_load_2d(&params.x, &shared.full[stage], shared.x[stage], step * Config::kStepColumns, 0, ptx::kEvictLast);
  };
  for (int step = begin; step < early; ++step) load_weight(step - begin, step);
  ptx::dependents_launch();
  ptx::dependency_wait();
  for (int step = begin; step < early; ++step) load_x(step - begin, step);
  ptx::Ring<Config::kStages> ring;
  for (int step = early; step < end; ++step, ring.advance()) {
    ptx::barrier_wait(&shared.empty[ring.stage], ring.phase);
    load_weight(ring.stage, step);
    load_x(ring.stage, step);
  }
}

// A stage is handed back one step late: its WGMMAs are known to be done only then.
template <class Config>
__device__ inline void linear_batch_multiply(LinearBatchShared<Config>& shared, const LinearBatchParams& params,
                                             float (&sums)[Config::kFeatures / 2]) {
  const auto [begin, end] = linear_batch_steps(params);
  ptx::Ring<Config::kStages> ring;
  int previous = -1;
  for (int step = begin; step < end; ++step, ring.advance()) {
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t x = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[ring.stage]) +
                                                       threadIdx.x / 128 * 64 * Config::kStepColumns * 2);
    const std::uint64_t weight = ptx::swizzle128_descriptor(ptx::shared_address(shared.weight[ring.stage]));
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::WgmmaBf16<Config::kFeatures>::ss(sums, x + 2 * k, weight + 2 * k, step != begin || k != 0);
    }
    ptx::wgmma_commit();
    if (previous >= 0) {
      ptx::wgmma_wait<1>();
      __syncwarp();
      ptx::barrier_arrive_warp(&shared.empty[previous]);
    }
    previous = ring.stage;
  }
  ptx::wgmma_wait<0>();
}

// Rows lane / 4 and + 8 of the warp's 16, features lane % 4 * 2 and + 1 of a group.
__device__ inline void linear_batch_store(const LinearBatchParams& params, int feature, const float4& sums) {
  feature += threadIdx.x % 4 * 2;
  if (feature >= params.out) return;
  const std::uint32_t bias =
      params.bias == nullptr ? 0 : *reinterpret_cast<const std::uint32_t*>(params.bias + feature);
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  std::uint16_t* to = params.y + row * params.y_stride + feature;
  const float low = ptx::bf16_low(bias), high = ptx::bf16_high(bias);
  if (row < params.rows) *reinterpret_cast<std::uint32_t*>(to) = ptx::pack_bf16(sums.x + low, sums.y + high);
  to += 8 * params.y_stride;
  if (row + 8 < params.rows) *reinterpret_cast<std::uint32_t*>(to) = ptx::pack_bf16(sums.z + low, sums.w + high);
}

// Group j belongs to block j / kOwned, which gets it from the other at [j % kOwned][thread].
template <class Config>
__device__ inline void linear_batch_reduce(LinearBatchShared<Config>& shared, const LinearBatchParams& params,
                                           const float (&sums)[Config::kFeatures / 2]) {
  const int own = ptx::cluster_rank();
  const float4* received = reinterpret_cast<const float4*>(shared.received) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < Config::kGroups; ++j) {
    if (j / Config::kOwned == own) continue;
    ptx::store_async_to_rank(ptx::shared_address(received + j % Config::kOwned * Config::kConsumers),
                             ptx::shared_address(&shared.sums_here), 1 - own, sums[4 * j], sums[4 * j + 1],
                             sums[4 * j + 2], sums[4 * j + 3]);
  }
  ptx::barrier_wait_cluster(&shared.sums_here, 0);
#pragma unroll
  for (int j = 0; j < Config::kGroups; ++j) {
    if (j / Config::kOwned != own) continue;
    const float4 other = received[j % Config::kOwned * Config::kConsumers];
    linear_batch_store(
        params, linear_batch_feature<Config>() + j * 8,
        {sums[4 * j] + other.x, sums[4 * j + 1] + other.y, sums[4 * j + 2] + other.z, sums[4 * j + 3] + other.w});
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    linear_batch_kernel(const __grid_constant__ LinearBatchParams params) {
  extern __shared__ std::uint8_t raw[];
  // From the start of the block's shared memory, not from `raw`: all blocks of a cluster must agree on the address.
  auto& shared = *reinterpret_cast<LinearBatchShared<Config>*>(raw + (1024 - ptx::shared_address(raw) % 1024) % 1024);
  if (threadIdx.x == Config::kConsumers) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], Config::kConsumers / 32 * ptx::kWarpArrivals);
    }
    ptx::barrier_init(&shared.sums_here, 1);
    ptx::barrier_init_fence();
    ptx::barrier_arrive_expect(&shared.sums_here, Config::kOwned * linear_batch_warps(params) * 512);
  }
  __syncthreads();
  ptx::cluster_arrive_relaxed();  // this block runs: its shared memory may be written
  if (threadIdx.x >= Config::kConsumers) {
    if (threadIdx.x == Config::kConsumers) linear_batch_produce<Config>(shared, params);
    __syncwarp();
    ptx::cluster_wait();
  } else {
    float sums[Config::kFeatures / 2];
    linear_batch_multiply<Config>(shared, params, sums);
    ptx::cluster_wait();
    if (static_cast<int>(threadIdx.x) / 32 < linear_batch_warps(params)) {
      linear_batch_reduce<Config>(shared, params, sums);
    }
  }
}

template <class Config>
void launch_linear_batch(const LinearBatchParams& params, cudaStream_t stream) {
  const int tiles = (params.out + Config::kFeatures - 1) / Config::kFeatures;
  rose::cuda::launch(&linear_batch_kernel<Config>, "linear_batch",
                     {.grid = dim3(static_cast<unsigned>(tiles * 2)),
                      .block = dim3(Config::kThreads),
                      .shared_bytes = sizeof(LinearBatchShared<Config>) + 1023,
                      .overlap_previous = true,
                      .cluster_blocks = 2},
                     stream, params);
}

template <class Config>
int linear_batch_clusters() {
  static const int known = [] {
    constexpr auto kSharedBytes = sizeof(LinearBatchShared<Config>) + 1023;
    static_assert(kSharedBytes <= 227 * 1024);
    rose::cuda::check_status(
        cudaFuncSetAttribute(&linear_batch_kernel<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kSharedBytes)),
        "linear_batch");
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1024);
    config.blockDim = dim3(Config::kThreads);
    config.dynamicSmemBytes = kSharedBytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    rose::cuda::check_status(cudaOccupancyMaxActiveClusters(&clusters, &linear_batch_kernel<Config>, &config),
                             "linear_batch");
    return clusters;
  }();
  return known;
}

}  // namespace rose::ops::cuda
