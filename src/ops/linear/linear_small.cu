// y[rows, out] = x[rows, in] . W[out, in]^T + bias      1..64 rows, bf16 operands, f32 accumulation, one rounding
//
// Bound: the bytes of W, read once (4.57 TB/s measured on an H200): 0.253 ms for 201088 x 2880, 6.5 us for 5120 x 2880.
//
// Mapping: W is the M operand of mma.m16n8k16 (16 features), x the N operand (8 rows at a time). The order of `in` is
// free as long as both operands agree: lane (g, t) = (lane / 4, lane % 4) loads 16 bytes of features g and g + 8 at
// 8 * t of a group of 32, and its four words are, in pairs, the A fragments of two products; 16 bytes of row g of x at
// the same place are the B fragments. So W goes straight from memory to registers, and x is read from shared memory in
// the same way.
//
// `in` falls into eight interleaved parts of 64-element steps: step i of part p starts at (8 * i + p) * 64. Two ways to
// deal with them, equal bit for bit:
//   kWarps    A block has a tile of 16 features, warp p part p; x lies whole in shared memory.
//   kCluster  A cluster of eight blocks has a tile of 128 features: block p part p, warp w features 16 * w ..; x in
//             shared memory is only the block's part, so 64 rows fit and are fetched an eighth as often.
// Warps write their partial sums where the part-0..7 sums of the same 16 features meet (the own block, or block w of
// the cluster), and these are added in the order of the parts: a row's result depends on nothing but its x, W and bias.
//
// Every warp keeps kStages steps (2 KB each) in flight, across tiles: the grid is persistent. The first are issued
// before the previous kernel has ended; only x depends on it.
#include "device/cuda/launch.cuh"
#include "ops/linear/linear_small_params.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"

namespace rose::ops::cuda {
namespace {

using Shape = LinearSmallShape;

// All threads of the cluster: arrive releases, wait acquires, also writes to other blocks' shared memory.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// 16 bytes to the same shared-memory address of block `rank` of the cluster.
__device__ inline void store_to_rank(std::uint32_t shared, int rank, const float (&v)[4]) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}\n" ::"r"(shared),
      "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
}

// Weights pass by once and never change: no room for them in L1. Zeros where !valid.
__device__ inline void load_weight(std::uint32_t (&v)[4], const std::uint16_t* p, bool valid) {
  asm volatile(
      "{\n.reg .pred valid;\nsetp.ne.b32 valid, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@valid ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
      : "l"(p), "r"(static_cast<int>(valid)));
}

template <int kColumnBlocks_, LinearSmallSplit kSplit_>
struct Config {
  static constexpr int kColumnBlocks = kColumnBlocks_;
  static constexpr LinearSmallSplit kSplit = kSplit_;
  static constexpr bool kCluster = kSplit == LinearSmallSplit::kCluster;
  static constexpr int kStages = kColumnBlocks == 8 ? 3 : 4;
  static constexpr int kTiles = kCluster ? Shape::kParts : 1;      // 16-feature tiles that are done together
  static constexpr int kPartSlots = kColumnBlocks * 32;            // float4 of one part's sums
  static constexpr int kBufferSlots = Shape::kParts * kPartSlots;  // float4 of all parts
};

// One step of one warp: [group of 32][features g, g + 8][words].
struct Step {
  std::uint32_t words[2][2][4];
};

// Where a warp stands in its walk over the tiles of its block (or cluster) and the steps of each.
struct Place {
  int tile, step;
  __device__ void advance(int steps, int stride) {
    if (++step == steps) step = 0, tile += stride;
  }
};

template <class Config>
__device__ inline void load_step(Step& loaded, const LinearSmallParams& params, const Place& place, int tiles,
                                 int part) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int feature = (place.tile * Config::kTiles + (Config::kCluster ? warp : 0)) * Shape::kFeatures + lane / 4;
  const int k = (place.step * Shape::kParts + part) * Shape::kStepWidth + lane % 4 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Features past the end repeat the last one; nobody stores them.
    const std::uint16_t* row = params.weight + static_cast<long>(min(feature + half * 8, params.out - 1)) * params.in;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const int at = k + group * 32;
      load_weight(loaded.words[group][half], row + at, at < params.in && place.tile < tiles);
    }
  }
}

// sums += one step; `x` is the shared address of the lane's 16 bytes of row g, other rows follow 8 * pitch apart.
template <class Config>
__device__ inline void multiply_step(float (&sums)[Config::kColumnBlocks][4], const Step& step, std::uint32_t x,
                                     std::uint32_t pitch) {
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    const auto& w = step.words[group];
    const std::uint32_t first[4] = {w[0][0], w[1][0], w[0][1], w[1][1]};
    const std::uint32_t second[4] = {w[0][2], w[1][2], w[0][3], w[1][3]};
#pragma unroll
    for (int block = 0; block < Config::kColumnBlocks; ++block) {
      std::uint32_t b[4];
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                   : "r"(x + static_cast<std::uint32_t>(block) * 8 * pitch + static_cast<std::uint32_t>(group) * 64));
      ptx::mma_bf16(sums[block], first, b[0], b[1]);
      ptx::mma_bf16(sums[block], second, b[2], b[3]);
    }
  }
}

// x (kWarps) or the block's part of it (kCluster) into shared memory; zeros past `in` and in rows that fill up a group.
template <class Config>
__device__ inline void load_x(const LinearSmallParams& params, std::uint32_t shared, int steps, int rank) {
  const int rows = Config::kColumnBlocks == 1 ? params.rows : Config::kColumnBlocks * 8;
  const int pieces = steps * (Config::kCluster ? 1 : Shape::kParts) * (Shape::kStepWidth / 8);  // of 16 bytes
  const int pitch = params.x_pitch;
  for (int i = threadIdx.x; i < rows * pieces; i += Shape::kThreads) {
    const int row = i / pieces, piece = i % pieces;
    const int k = Config::kCluster ? (piece / 8 * Shape::kParts + rank) * Shape::kStepWidth + piece % 8 * 8 : piece * 8;
    const bool valid = row < params.rows && k < params.in;
    ptx::copy_async_16(shared + static_cast<std::uint32_t>(row * pitch + piece * 16),
                       valid ? params.x + row * params.x_stride + k : params.x, valid);
  }
  ptx::copy_async_commit();
  ptx::copy_async_wait<0>();
}

__device__ inline void store_y(const LinearSmallParams& params, int row, int feature, float sum) {
  if (row >= params.rows || feature >= params.out) return;
  if (params.bias != nullptr) sum += ptx::bf16_to_float(params.bias[feature]);
  const long at = row * params.y_stride + feature;
  if (params.y_is_f32) {
    static_cast<float*>(params.y)[at] = sum;
  } else {
    static_cast<std::uint16_t*>(params.y)[at] = static_cast<std::uint16_t>(ptx::pack_bf16(sum, 0));
  }
}

// The sums of the eight parts, in their order, of 16 features from `feature` on.
template <class Config>
__device__ inline void add_parts(const LinearSmallParams& params, const float4* partials, int feature) {
  const int i = threadIdx.x;
  if (i >= Config::kPartSlots) return;
  float4 sum = partials[i];
#pragma unroll
  for (int part = 1; part < Shape::kParts; ++part) {
    const float4 more = partials[part * Config::kPartSlots + i];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  const int row = i / 32 * 8 + i % 4 * 2;
  feature += i % 32 / 4;
  store_y(params, row, feature, sum.x);
  store_y(params, row + 1, feature, sum.y);
  store_y(params, row, feature + 8, sum.z);
  store_y(params, row + 1, feature + 8, sum.w);
}

// Ends a tile: exchanges the partial sums, adds them up. In a cluster there is one buffer, and an arrival after the
// adding says that it may be written again; in a block two buffers alternate, so that one barrier a tile is enough.
template <class Config>
__device__ inline void finish_tile(const LinearSmallParams& params, float4* partials, int tile, int buffer, int rank,
                                   const float (&sums)[Config::kColumnBlocks][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if constexpr (Config::kCluster) {
    cluster_wait();
#pragma unroll
    for (int block = 0; block < Config::kColumnBlocks; ++block) {
      store_to_rank(ptx::shared_address(partials + rank * Config::kPartSlots + block * 32 + lane), warp, sums[block]);
    }
    cluster_arrive();
    cluster_wait();
    add_parts<Config>(params, partials, (tile * Shape::kParts + rank) * Shape::kFeatures);
    __syncwarp();
    cluster_arrive();
  } else {
    partials += buffer * Config::kBufferSlots;
#pragma unroll
    for (int block = 0; block < Config::kColumnBlocks; ++block) {
      partials[warp * Config::kPartSlots + block * 32 + lane] = {sums[block][0], sums[block][1], sums[block][2],
                                                                 sums[block][3]};
    }
    __syncthreads();
    add_parts<Config>(params, partials, tile * Shape::kFeatures);
    __syncwarp();
  }
}

template <class Config>
__device__ inline void linear_small(const LinearSmallParams& params) {
  extern __shared__ float4 shared[];
  float4* partials = shared;
  const std::uint32_t x = ptx::shared_address(shared + (Config::kCluster ? 1 : 2) * Config::kBufferSlots);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = Config::kCluster ? static_cast<int>(blockIdx.x) % Shape::kParts : 0;
  const int part = Config::kCluster ? rank : warp;
  const int stride = static_cast<int>(gridDim.x) / Config::kTiles;
  const int steps = params.steps;
  const int tiles = (params.out + Config::kTiles * Shape::kFeatures - 1) / (Config::kTiles * Shape::kFeatures);

  Place loading{static_cast<int>(blockIdx.x) / Config::kTiles, 0}, multiplying = loading;
  Step stages[Config::kStages];
#pragma unroll
  for (int stage = 0; stage < Config::kStages; ++stage) {
    load_step<Config>(stages[stage], params, loading, tiles, part);
    loading.advance(steps, stride);
  }
  if constexpr (Config::kCluster) cluster_arrive();  // this block runs: its shared memory may be written
  ptx::dependency_wait();
  load_x<Config>(params, x, steps, rank);
  __syncthreads();

  const auto pitch = static_cast<std::uint32_t>(params.x_pitch);
  const int x_row = Config::kColumnBlocks == 1 ? min(lane / 4, params.rows - 1) : lane / 4;
  const std::uint32_t x_lane = x + static_cast<std::uint32_t>(x_row) * pitch + lane % 4 * 16;
  float sums[Config::kColumnBlocks][4] = {};
  int buffer = 0;
  while (multiplying.tile < tiles) {
#pragma unroll
    for (int stage = 0; stage < Config::kStages; ++stage) {
      if (multiplying.tile < tiles) {
        const int held = Config::kCluster ? multiplying.step : multiplying.step * Shape::kParts + warp;
        multiply_step<Config>(sums, stages[stage], x_lane + static_cast<std::uint32_t>(held) * 128, pitch);
        load_step<Config>(stages[stage], params, loading, tiles, part);
        loading.advance(steps, stride);
        if (multiplying.step + 1 == steps) {
          finish_tile<Config>(params, partials, multiplying.tile, buffer, rank, sums);
          buffer ^= 1;
#pragma unroll
          for (int i = 0; i < Config::kColumnBlocks * 4; ++i) sums[i / 4][i % 4] = 0;
        }
        multiplying.advance(steps, stride);
      }
    }
  }
  ptx::dependents_launch();
  if constexpr (Config::kCluster) cluster_wait();
}

template <int kColumnBlocks>
__global__ void __launch_bounds__(Shape::kThreads, 2) linear_small_kernel(const LinearSmallParams params) {
  linear_small<Config<kColumnBlocks, LinearSmallSplit::kWarps>>(params);
}

template <int kColumnBlocks>
__global__ void __cluster_dims__(Shape::kParts, 1, 1) __launch_bounds__(Shape::kThreads, 2)
    linear_small_cluster_kernel(const LinearSmallParams params) {
  linear_small<Config<kColumnBlocks, LinearSmallSplit::kCluster>>(params);
}

// Blocks that fit on the GPU at once: a second wave of a persistent grid would double the time.
int resident_clusters(void (*kernel)(LinearSmallParams), std::size_t shared_bytes, int wanted) {
  rose::cuda::check_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
      "linear_small");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = Shape::kParts;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(wanted * Shape::kParts));
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  rose::cuda::check_status(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "linear_small");
  return clusters;
}

template <int kColumnBlocks>
void launch_column_blocks(const LinearSmallParams& params, LinearSmallSplit split, int multiprocessors,
                          cudaStream_t stream) {
  const auto shared = static_cast<std::size_t>(Shape::shared_bytes(params.rows, params.in, split));
  rose::cuda::LaunchShape shape{
      .grid = dim3(1), .block = dim3(Shape::kThreads), .shared_bytes = shared, .overlap_previous = true};
  if (split == LinearSmallSplit::kCluster) {
    const int tiles = (params.out + Shape::kParts * Shape::kFeatures - 1) / (Shape::kParts * Shape::kFeatures);
    const int resident = resident_clusters(&linear_small_cluster_kernel<kColumnBlocks>, shared, tiles);
    const int clusters = tiles < resident ? tiles : resident > 0 ? resident : 1;
    shape.grid = dim3(static_cast<unsigned>(clusters * Shape::kParts));
    rose::cuda::launch(&linear_small_cluster_kernel<kColumnBlocks>, "linear_small", shape, stream, params);
    return;
  }
  if constexpr (kColumnBlocks * 8 <= Shape::kWarpsRowsMax) {
    const int tiles = (params.out + Shape::kFeatures - 1) / Shape::kFeatures;
    const int resident = multiprocessors * (2 * (shared + 1024) <= 228 * 1024 ? 2 : 1);
    shape.grid = dim3(static_cast<unsigned>(tiles < resident ? tiles : resident));
    rose::cuda::launch(&linear_small_kernel<kColumnBlocks>, "linear_small", shape, stream, params);
  }
}

}  // namespace

void launch_linear_small(const LinearSmallParams& given, LinearSmallSplit split, int multiprocessors,
                         cudaStream_t stream) {
  LinearSmallParams params = given;
  params.steps = Shape::steps(params.in);
  params.x_pitch = Shape::x_pitch(params.in, split);
  switch (Shape::column_blocks(params.rows)) {
    case 1:
      return launch_column_blocks<1>(params, split, multiprocessors, stream);
    case 2:
      return launch_column_blocks<2>(params, split, multiprocessors, stream);
    case 4:
      return launch_column_blocks<4>(params, split, multiprocessors, stream);
    default:
      return launch_column_blocks<8>(params, split, multiprocessors, stream);
  }
}

}  // namespace rose::ops::cuda
