// y[rows, out] = x[rows, in] . W[out, in]^T + bias      bf16 or e4m3 operands, f32 sums, one rounding
//
// e4m3: x has a scale for a row's 128 columns, W one for 128 x 128 elements. A step of 128 goes into a fresh
// accumulator and is added in f32 with both scales, because FP8 WGMMA keeps too few bits to accumulate over `in`.
//
// Bound: the bytes of W, read once (4.57 TB/s on an H200): 6.5 us for 5120 x 2880 in bf16, 0.253 ms for 201088 x 2880.
// From about 200 rows on the tensor cores bind.
//
// Mapping: the operands change places. Features are the M of WGMMA, so that no product is wasted on rows that do not
// exist: a tile is 128 features (two warpgroups of 64) by kRows rows. One thread keeps a ring of stages filled by TMA
// (128 bytes of `in` of both operands).
//   splits == 1   a persistent grid walks the tiles, and sums go from registers to y while the next tile is loading
//   splits > 1    where the tiles are fewer than the multiprocessors: a cluster has a tile, each of its blocks a range
//                 of steps. Then a group of 8 rows x 64 features at a time belongs to one block: the others write
//                 their sums into its shared memory (where the ring was), and it adds them in the order of the ranges
// The order in which a row's products are added follows from `out`, `in` and splits alone.
//
// The first stages of W are under way before the previous kernel has ended; only x depends on it.
#include <atomic>

#include "device/cuda/launch.cuh"
#include "ops/linear/linear_swapped_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/cluster.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/ring.cuh"
#include "ops/ptx/tma.cuh"
#include "ops/ptx/wgmma.cuh"

namespace rose::ops::cuda {
namespace {

using Shape = LinearSwappedShape;

// f32 rows on their way from registers to y, 16 x 64 features a warpgroup; the pitch spreads a warp's stores over
// banks.
constexpr int kStagingRows = 16;
constexpr int kStagingPitch = 68;

template <int kRows_, bool kFp8_, int kStages_, int kBlocks_>
struct Config {
  static constexpr int kRows = kRows_;
  static constexpr bool kFp8 = kFp8_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // on a multiprocessor
  // One block alone has a whole warpgroup to load, whose registers go to the other two: 384 threads of 168.
  static constexpr bool kRebalance = kBlocks == 1;
  static constexpr int kThreads = kRebalance ? 384 : 288;
  static constexpr int kStepColumns = Shape::kStepBytes / (kFp8 ? 1 : 2);
  static constexpr int kWeightBytes = Shape::kFeatures * Shape::kStepBytes;
  static constexpr int kXBytes = kRows * Shape::kStepBytes;
  static constexpr int kScaleBytes = kFp8 ? kRows * 4 : 0;
  static constexpr int kSums = kRows / 2;    // a thread's
  static constexpr int kGroups = kRows / 4;  // of 8 rows x 64 features
  // Where a cluster's sums meet: of its own for few rows, so that nobody has to wait until the ring is free.
  static constexpr bool kOwnReceived = kRows <= 32;
  static constexpr int kReceivedBytes = (kGroups + Shape::kSplitsMax - 1) * 2048;
  static constexpr int kStagingBytes = 2 * kStagingRows * kStagingPitch * 4;
  static constexpr int kBufferBytes = kOwnReceived && kReceivedBytes > kStagingBytes ? kReceivedBytes : kStagingBytes;
};

template <class Config>
struct alignas(1024) Shared {
  std::uint8_t weight[Config::kStages][Config::kWeightBytes];
  std::uint8_t x[Config::kStages][Config::kXBytes];
  alignas(128) float x_scales[Config::kFp8 ? Config::kStages : 1][Config::kRows < 32 ? 32 : Config::kRows];
  alignas(16) std::uint8_t buffer[Config::kBufferBytes];
  std::uint64_t full[Config::kStages];
  std::uint64_t empty[Config::kStages];
  std::uint64_t received;  // counts the bytes of the sums that other blocks (and this one) store here
};

// Items are tiles; row tiles of the same features follow each other. A cluster has one item.
template <class Config>
__device__ inline int row_tiles(const LinearSwappedParams& params) {
  return (params.rows + Config::kRows - 1) / Config::kRows;
}
template <class Config>
__device__ inline int items(const LinearSwappedParams& params) {
  return row_tiles<Config>(params) * ((params.out + Shape::kFeatures - 1) / Shape::kFeatures);
}

// The steps of every item that this block takes.
struct Range {
  int begin, end;
};
__device__ inline Range range_of(const LinearSwappedParams& params) {
  const int rank = params.splits == 1 ? 0 : ptx::cluster_rank();
  return {params.steps * rank / params.splits, params.steps * (rank + 1) / params.splits};
}

template <class Config>
__device__ inline void produce(Shared<Config>& shared, const LinearSwappedParams& params, const Range& range) {
  constexpr int kBytes = Config::kWeightBytes + Config::kXBytes + Config::kScaleBytes;
  const int tiles_of_rows = row_tiles<Config>(params);
  const std::uint64_t weight_policy = tiles_of_rows == 1 ? ptx::kEvictFirst : ptx::kEvictNormal;
  const auto load_weight = [&](int stage, int item, int step) {
    ptx::barrier_arrive_expect(&shared.full[stage], kBytes);
    ptx::tma_load_2d(&params.weight, &shared.full[stage], shared.weight[stage], step * Config::kStepColumns,
                     item / tiles_of_rows * Shape::kFeatures, weight_policy);
  };
  const auto load_x = [&](int stage, int item, int step) {
    const int row = item % tiles_of_rows * Config::kRows;
    ptx::tma_load_2d(&params.x, &shared.full[stage], shared.x[stage], step * Config::kStepColumns, row,
                     ptx::kEvictLast);
    if constexpr (Config::kFp8) {
      ptx::tma_load_2d(&params.x_scales, &shared.full[stage], shared.x_scales[stage], row, step, ptx::kEvictLast);
    }
  };
  const int first = static_cast<int>(blockIdx.x) / params.splits;
  const int early = min(Config::kStages, range.end - range.begin);
  for (int i = 0; i < early; ++i) load_weight(i, first, range.begin + i);
  ptx::dependents_launch();
  ptx::dependency_wait();
  for (int i = 0; i < early; ++i) load_x(i, first, range.begin + i);
  ptx::Ring<Config::kStages> ring;
  int done = 0;
  for (int item = first; item < items<Config>(params); item += static_cast<int>(gridDim.x)) {
    for (int step = range.begin; step < range.end; ++step, ++done, ring.advance()) {
      if (done < early) continue;
      ptx::barrier_wait(&shared.empty[ring.stage], ring.phase ^ 1);
      load_weight(ring.stage, item, step);
      load_x(ring.stage, item, step);
    }
  }
}

// The warpgroup's 64 features.
template <class Config>
__device__ inline std::uint64_t weight_tile(Shared<Config>& shared, int stage) {
  return ptx::swizzle128_descriptor(ptx::shared_address(shared.weight[stage]) +
                                    threadIdx.x / 128 * 64 * Shape::kStepBytes);
}

// A stage is handed back one step late: its WGMMAs are known to be done only then.
template <class Config>
__device__ inline void multiply_bf16(Shared<Config>& shared, const Range& range, ptx::Ring<Config::kStages>& ring,
                                     float (&sums)[Config::kSums]) {
  int previous = -1;
  for (int step = range.begin; step < range.end; ++step, ring.advance()) {
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t weight = weight_tile(shared, ring.stage);
    const std::uint64_t x = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[ring.stage]));
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::WgmmaBf16<Config::kRows>::ss(sums, weight + 2 * k, x + 2 * k, step != range.begin || k != 0);
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

template <class Config>
__device__ inline void multiply_fp8(Shared<Config>& shared, const Range& range, const float* weight_scales,
                                    ptx::Ring<Config::kStages>& ring, float (&sums)[Config::kSums]) {
#pragma unroll
  for (int i = 0; i < Config::kSums; ++i) sums[i] = 0;
  float next_scale = weight_scales[range.begin];
  for (int step = range.begin; step < range.end; ++step, ring.advance()) {
    const float weight_scale = next_scale;
    if (step + 1 < range.end) next_scale = weight_scales[step + 1];
    ptx::barrier_wait(&shared.full[ring.stage], ring.phase);
    const std::uint64_t weight = weight_tile(shared, ring.stage);
    const std::uint64_t x = ptx::swizzle128_descriptor(ptx::shared_address(shared.x[ring.stage]));
    const std::uint32_t x_scales = ptx::shared_address(&shared.x_scales[ring.stage][threadIdx.x % 4 * 2]);
    float products[Config::kSums];
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::WgmmaE4m3<Config::kRows>::ss(products, weight + 2 * k, x + 2 * k, k != 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int group = 0; group < Config::kRows / 8; ++group) {
      float2 scales;  // volatile: all of them at once would not fit beside the sums
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(scales.x), "=f"(scales.y) : "r"(x_scales + group * 32));
      const float scale0 = weight_scale * scales.x, scale1 = weight_scale * scales.y;
      sums[4 * group] += products[4 * group] * scale0;
      sums[4 * group + 1] += products[4 * group + 1] * scale1;
      sums[4 * group + 2] += products[4 * group + 2] * scale0;
      sums[4 * group + 3] += products[4 * group + 3] * scale1;
    }
    ptx::barrier_arrive(&shared.empty[ring.stage]);
  }
}

__device__ inline void store_one(const LinearSwappedParams& params, long at, float value) {
  if (params.y_is_f32) {
    static_cast<float*>(params.y)[at] = value;
  } else {
    static_cast<std::uint16_t*>(params.y)[at] = static_cast<std::uint16_t>(ptx::pack_bf16(value, 0));
  }
}

// Two neighbouring features of a row, the first even.
__device__ inline void store_pair(const LinearSwappedParams& params, int row, int feature, float low, float high) {
  if (row >= params.rows || feature >= params.out) return;
  const long at = row * params.y_stride + feature;
  if (params.y_pairs && feature + 1 < params.out) {
    if (params.y_is_f32) {
      *reinterpret_cast<float2*>(static_cast<float*>(params.y) + at) = {low, high};
    } else {
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(params.y) + at) = ptx::pack_bf16(low, high);
    }
    return;
  }
  store_one(params, at, low);
  if (feature + 1 < params.out) store_one(params, at + 1, high);
}

// Bias of a thread's features g and g + 8 (g = lane / 4) of its warp's 16.
__device__ inline float2 load_bias(const LinearSwappedParams& params, int feature) {
  feature += threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  float2 bias = {0, 0};
  if (params.bias != nullptr) {
    if (feature < params.out) bias.x = ptx::bf16_to_float(params.bias[feature]);
    if (feature + 8 < params.out) bias.y = ptx::bf16_to_float(params.bias[feature + 8]);
  }
  return bias;
}

// A thread's four sums of 8 rows x 64 features: features g and g + 8, rows 2t and 2t + 1 (t = lane % 4). Neighbours in
// g trade, so that each has two features of one row.
__device__ inline void store_sums(const LinearSwappedParams& params, int row, int feature, float2 bias, float4 v) {
  const int lane = threadIdx.x % 32;
  row += lane % 4 * 2;
  feature += threadIdx.x / 32 % 4 * 16 + lane / 4;
  v.x += bias.x, v.y += bias.x, v.z += bias.y, v.w += bias.y;
  const bool odd = lane / 4 % 2 != 0;
  const float low = __shfl_xor_sync(0xffffffffu, odd ? v.x : v.y, 4);
  const float high = __shfl_xor_sync(0xffffffffu, odd ? v.z : v.w, 4);
  if (odd) {
    store_pair(params, row + 1, feature - 1, low, v.y);
    store_pair(params, row + 1, feature + 7, high, v.w);
  } else {
    store_pair(params, row, feature, v.x, low);
    store_pair(params, row, feature + 8, v.z, high);
  }
}

// 64 features of all rows of the tile in f32, 16 rows at a time through shared memory: rows of y lie far apart, and 256
// bytes of one at once cost less than 32 of eight. They leave L2 first: kept there, they would displace x and W.
template <class Config>
__device__ inline void store_f32(Shared<Config>& shared, const LinearSwappedParams& params, int row, int feature,
                                 float2 bias, const float (&sums)[Config::kSums]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, warpgroup = threadIdx.x / 128;
  float* staging = reinterpret_cast<float*>(shared.buffer) + warpgroup * kStagingRows * kStagingPitch;
  float* to = staging + lane % 4 * 2 * kStagingPitch + warp * 16 + lane / 4;
#pragma unroll
  for (int chunk = 0; chunk < (Config::kRows + kStagingRows - 1) / kStagingRows; ++chunk) {
    if (row + chunk * kStagingRows < params.rows) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (chunk * 2 + i < Config::kRows / 8) {
          const float* sum = &sums[(chunk * 2 + i) * 4];
          float* at = to + i * 8 * kStagingPitch;
          at[0] = sum[0] + bias.x;
          at[kStagingPitch] = sum[1] + bias.x;
          at[8] = sum[2] + bias.y;
          at[kStagingPitch + 8] = sum[3] + bias.y;
        }
      }
      ptx::named_sync(1 + warpgroup, 128);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = i * 8 + warp * 2 + lane / 16, f = lane % 16 * 4;
        const int y_row = row + chunk * kStagingRows + r;
        if (r < Config::kRows && y_row < params.rows && feature + f < params.out) {
          __stcs(reinterpret_cast<float4*>(static_cast<float*>(params.y) + y_row * params.y_stride + feature + f),
                 *reinterpret_cast<const float4*>(staging + r * kStagingPitch + f));
        }
      }
      ptx::named_sync(1 + warpgroup, 128);
    }
  }
}

// Groups of 8 rows x 64 features that a tile has.
template <class Config>
__device__ inline int groups_of(const LinearSwappedParams& params, int row) {
  return min(Config::kGroups, (params.rows - row + 7) / 8 * 2);
}

// Adds the ranges of `in` up. Group u (of 8 rows, of 64 features: row group u / 2, warpgroup u % 2) belongs to block
// u % splits of the cluster, whose shared memory gets it at [u / splits][rank it comes from][thread].
template <class Config>
__device__ inline void reduce_cluster(Shared<Config>& shared, const LinearSwappedParams& params, int row, int feature,
                                      const float2 (&biases)[2], const float (&sums)[Config::kSums]) {
  auto* received = reinterpret_cast<float4*>(Config::kOwnReceived ? shared.buffer : shared.weight[0]);
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int splits = params.splits, own = ptx::cluster_rank();
  const int groups = groups_of<Config>(params, row);
  const std::uint32_t counter = ptx::shared_address(&shared.received);
  if constexpr (!Config::kOwnReceived) ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();  // all blocks run, or, where the ring is written over, none multiplies any more
#pragma unroll
  for (int i = 0; i < Config::kRows / 8; ++i) {
    const int group = i * 2 + warpgroup;
    if (group < groups) {
      const float4* slot = received + (group / splits * splits + own) * 128 + thread;
      ptx::store_async_to_rank(ptx::shared_address(slot), counter, group % splits, sums[4 * i], sums[4 * i + 1],
                               sums[4 * i + 2], sums[4 * i + 3]);
    }
  }
  ptx::barrier_wait_cluster(&shared.received, 0);
  for (int slot = warpgroup; slot * splits + own < groups; slot += 2) {
    const int group = slot * splits + own;
    const float4* from = received + slot * splits * 128 + thread;
    float4 sum = from[0];
    for (int rank = 1; rank < splits; ++rank) {
      const float4 more = from[rank * 128];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    store_sums(params, row + group / 2 * 8, feature + group % 2 * 64, group % 2 == 0 ? biases[0] : biases[1], sum);
  }
}

template <class Config>
__device__ inline void store_tile(Shared<Config>& shared, const LinearSwappedParams& params, int row, int feature,
                                  float2 bias, const float (&sums)[Config::kSums]) {
  if (params.y_quads) return store_f32<Config>(shared, params, row, feature, bias, sums);
#pragma unroll
  for (int i = 0; i < Config::kRows / 8; ++i) {
    if (row + i * 8 < params.rows) {
      store_sums(params, row + i * 8, feature, bias,
                 make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    }
  }
}

template <class Config>
__device__ inline void consume(Shared<Config>& shared, const LinearSwappedParams& params, const Range& range) {
  const int own = threadIdx.x < 128 ? 0 : 64;  // the warpgroup's features
  ptx::Ring<Config::kStages> ring;
  float sums[Config::kSums];
  for (int item = static_cast<int>(blockIdx.x) / params.splits; item < items<Config>(params);
       item += static_cast<int>(gridDim.x)) {
    const int row = item % row_tiles<Config>(params) * Config::kRows;
    const int feature_tile = item / row_tiles<Config>(params), feature = feature_tile * Shape::kFeatures;
    const float2 biases[2] = {load_bias(params, feature), load_bias(params, feature + 64)};
    if constexpr (Config::kFp8) {
      multiply_fp8<Config>(shared, range, params.weight_scales + static_cast<long>(feature_tile) * params.steps, ring,
                           sums);
    } else {
      multiply_bf16<Config>(shared, range, ring, sums);
    }
    if (params.splits > 1) return reduce_cluster<Config>(shared, params, row, feature, biases, sums);  // its only tile
    store_tile<Config>(shared, params, row, feature + own, own == 0 ? biases[0] : biases[1], sums);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    linear_swapped_kernel(const __grid_constant__ LinearSwappedParams params) {
  extern __shared__ std::uint8_t raw[];
  // From the start of the block's shared memory, not from `raw`: all blocks of a cluster must agree on the address.
  auto& shared = *reinterpret_cast<Shared<Config>*>(raw + (1024 - ptx::shared_address(raw) % 1024) % 1024);
  if (threadIdx.x == 256) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], 256);
    }
    ptx::barrier_init(&shared.received, 1);
    ptx::barrier_init_fence();
    if (params.splits > 1) {
      const int row = static_cast<int>(blockIdx.x) / params.splits % row_tiles<Config>(params) * Config::kRows;
      const int owned = (groups_of<Config>(params, row) + params.splits - 1 - ptx::cluster_rank()) / params.splits;
      ptx::barrier_arrive_expect(&shared.received, owned * params.splits * 2048);
    }
  }
  __syncthreads();
  const Range range = range_of(params);
  if constexpr (Config::kOwnReceived) {
    if (params.splits > 1) ptx::cluster_arrive_relaxed();  // this block runs: its shared memory may be written
  }
  if (threadIdx.x < 256) {
    if constexpr (Config::kRebalance) ptx::registers_increase<232>();
    consume<Config>(shared, params, range);
  } else {
    if constexpr (Config::kRebalance) ptx::registers_decrease<40>();
    if (threadIdx.x == 256) produce<Config>(shared, params, range);
    __syncwarp();
    if (params.splits > 1) {  // the barrier of reduce_cluster: a cluster's barrier does not notice threads that end
      if constexpr (!Config::kOwnReceived) ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
    }
  }
}

template <class Config>
constexpr std::size_t shared_bytes() {
  return sizeof(Shared<Config>) + 1023;
}

template <class Config>
void launch_config(const LinearSwappedParams& params, int multiprocessors, cudaStream_t stream) {
  static_assert(Config::kBlocks * (shared_bytes<Config>() + 1024) <= 228 * 1024);
  static_assert((Config::kGroups + Shape::kSplitsMax - 1) * 2048 <=
                Config::kStages * (Config::kWeightBytes + Config::kXBytes));
  const int row_tiles = (params.rows + Config::kRows - 1) / Config::kRows;
  const int items = row_tiles * ((params.out + Shape::kFeatures - 1) / Shape::kFeatures);
  const int resident = multiprocessors * Config::kBlocks;
  const int blocks = params.splits > 1 ? items * params.splits : items < resident ? items : resident;
  rose::cuda::launch(&linear_swapped_kernel<Config>, "linear_swapped",
                     {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(Config::kThreads),
                      .shared_bytes = shared_bytes<Config>(),
                      .overlap_previous = true,
                      .cluster_blocks = params.splits > 1 ? static_cast<unsigned>(params.splits) : 0},
                     stream, params);
}

template <bool kFp8>
void launch_rows(const LinearSwappedParams& params, int multiprocessors, cudaStream_t stream) {
  switch (Shape::tile_rows(params.rows, params.out, kFp8)) {
    case 8:
      return launch_config<Config<8, kFp8, 11, 1>>(params, multiprocessors, stream);
    case 16:
      return launch_config<Config<16, kFp8, 10, 1>>(params, multiprocessors, stream);
    case 32:
      return launch_config<Config<32, kFp8, 9, 1>>(params, multiprocessors, stream);
    case 64:
      return launch_config<Config<64, kFp8, 8, 1>>(params, multiprocessors, stream);
    case 128:
      return launch_config<Config<128, kFp8, 6, 1>>(params, multiprocessors, stream);
    default:
      if constexpr (!kFp8) launch_config<Config<256, false, 4, 1>>(params, multiprocessors, stream);
  }
}

}  // namespace

int linear_swapped_clusters(int splits) {
  using Largest = Config<128, false, 6, 1>;
  static std::atomic<int> known[Shape::kSplitsMax + 1];
  if (const int clusters = known[splits].load(); clusters > 0) return clusters;
  rose::cuda::check_status(
      cudaFuncSetAttribute(&linear_swapped_kernel<Largest>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes<Largest>())),
      "linear_swapped");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(splits), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(splits) * 256);
  config.blockDim = dim3(Largest::kThreads);
  config.dynamicSmemBytes = shared_bytes<Largest>();
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  rose::cuda::check_status(cudaOccupancyMaxActiveClusters(&clusters, &linear_swapped_kernel<Largest>, &config),
                           "linear_swapped");
  known[splits].store(clusters > 0 ? clusters : 1);
  return clusters > 0 ? clusters : 1;
}

void launch_linear_swapped(const LinearSwappedParams& params, bool fp8, int multiprocessors, cudaStream_t stream) {
  if (fp8) return launch_rows<true>(params, multiprocessors, stream);
  launch_rows<false>(params, multiprocessors, stream);
}

}  // namespace rose::ops::cuda
