// Few rows: logits = x . W^T + bias, the k largest, softmax over them, in one kernel.
//
// Bound: latency. W of 128 experts is 0.74 MB: 0.16 us of bandwidth, but it must be asked for before the previous
// kernel has ended, and nothing may go through memory in between.
//
// Mapping: a cluster of eight blocks has a tile of 8 or 16 rows. `in` falls into eight interleaved parts of 64-element
// steps; block p has part p of all experts, which lies whole in its shared memory before x is there. A warp has 16
// experts at a time (M of mma.m16n8k16; rows are N). Row r belongs to block r % 8: all blocks write their partial
// logits into its shared memory, one warp adds them in the order of the parts and chooses.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/choose.cuh"
#include "ops/ptx/cluster.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/route/route_params.cuh"

namespace rose::ops::cuda {
namespace {

using Shape = RouteFewShape;

// Part `rank` of rows [0, held) of a matrix, of which `valid_rows` exist, into shared memory; zeros elsewhere.
__device__ inline void load_part(std::uint32_t shared, const std::uint16_t* from, long stride, int held, int valid_rows,
                                 int in, int pitch, int rank) {
  const int pieces = (pitch - 64) / 16;
  for (int i = threadIdx.x; i < held * pieces; i += Shape::kThreads) {
    const int row = i / pieces, piece = i % pieces;
    const int k = (piece / 8 * Shape::kParts + rank) * Shape::kStepWidth + piece % 8 * 8;
    const bool valid = row < valid_rows && k < in;
    ptx::copy_async_16(shared + static_cast<std::uint32_t>(row * pitch + piece * 16),
                       valid ? from + row * stride + k : from, valid);
  }
}

__device__ inline void load_shared(std::uint32_t (&v)[4], std::uint32_t shared) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared));
}

// 16 experts from `experts` on, kColumnBlocks x 8 rows of x: both operands at the lane's place. The order of `in` is
// free as long as both agree: 16 bytes of features g and g + 8 are the A fragments of two products.
template <int kColumnBlocks>
__device__ inline void multiply(float (&sums)[kColumnBlocks][4], std::uint32_t experts, std::uint32_t x, int steps,
                                std::uint32_t pitch) {
#pragma unroll 4
  for (int half_step = 0; half_step < 2 * steps; ++half_step) {
    const std::uint32_t at = static_cast<std::uint32_t>(half_step) * 64;
    std::uint32_t low[4], high[4];
    load_shared(low, experts + at);
    load_shared(high, experts + 8 * pitch + at);
    const std::uint32_t first[4] = {low[0], high[0], low[1], high[1]};
    const std::uint32_t second[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
    for (int block = 0; block < kColumnBlocks; ++block) {
      std::uint32_t b[4];
      load_shared(b, x + static_cast<std::uint32_t>(block) * 8 * pitch + at);
      ptx::mma_bf16(sums[block], first, b[0], b[1]);
      ptx::mma_bf16(sums[block], second, b[2], b[3]);
    }
  }
}

template <int kColumnBlocks>
__global__ void __cluster_dims__(Shape::kParts, 1, 1) __launch_bounds__(Shape::kThreads)
    route_few_kernel(const RouteLogits logits, const RouteChoice choice, const int pitch_bytes) {
  constexpr int kRows = 8 * kColumnBlocks;
  extern __shared__ float4 shared[];
  __shared__ std::uint64_t received;                  // counts the bytes of the partial logits that come here
  auto* partials = reinterpret_cast<float*>(shared);  // [row / 8][part][expert]
  const std::uint32_t weight =
      ptx::shared_address(shared) + kColumnBlocks * Shape::kParts * RouteChoice::kExpertsMax * 4;
  const int held = (logits.experts + 15) / 16 * 16, steps = (pitch_bytes - 64) / (2 * Shape::kStepWidth);
  const auto pitch = static_cast<std::uint32_t>(pitch_bytes);
  const std::uint32_t x = weight + static_cast<std::uint32_t>(held) * pitch;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = ptx::cluster_rank();
  const int first_row = static_cast<int>(blockIdx.x) / Shape::kParts * kRows;
  const int rows = min(kRows, logits.rows - first_row);

  if (threadIdx.x == 0) {
    ptx::barrier_init(&received, 1);
    ptx::barrier_init_fence();
    const int owned = (rows + 7 - rank) / 8;
    ptx::barrier_arrive_expect(&received, owned * Shape::kParts * held * static_cast<int>(sizeof(float)));
  }
  __syncwarp();
  load_part(weight, logits.weight, logits.in, held, logits.experts, logits.in, pitch_bytes, rank);
  ptx::copy_async_commit();
  ptx::cluster_arrive_relaxed();  // this block runs: its shared memory may be written
  ptx::dependents_launch();
  ptx::dependency_wait();
  load_part(x, logits.x + first_row * logits.x_stride, logits.x_stride, kRows, rows, logits.in, pitch_bytes, rank);
  ptx::copy_async_commit();
  ptx::copy_async_wait<0>();
  __syncthreads();
  ptx::cluster_wait();

  const std::uint32_t lane_at = static_cast<std::uint32_t>(lane / 4) * pitch + lane % 4 * 16;
  for (int expert = warp * 16; expert < held; expert += Shape::kThreads / 2) {
    float sums[kColumnBlocks][4] = {};
    multiply<kColumnBlocks>(sums, weight + static_cast<std::uint32_t>(expert) * pitch + lane_at, x + lane_at, steps,
                            pitch);
#pragma unroll
    for (int i = 0; i < kColumnBlocks * 4; ++i) {
      const int row_of_eight = lane % 4 * 2 + i % 2;
      if (i / 4 * 8 + row_of_eight < rows) {
        const float* to =
            partials + (i / 4 * Shape::kParts + rank) * RouteChoice::kExpertsMax + expert + lane / 4 + i % 4 / 2 * 8;
        ptx::store_async_to_rank(ptx::shared_address(to), ptx::shared_address(&received), row_of_eight,
                                 sums[i / 4][i % 4]);
      }
    }
  }
  const int row = warp * 8 + rank;
  if (warp >= kColumnBlocks || row >= rows) return;
  ptx::barrier_wait_cluster(&received, 0);
  __syncwarp();
  unsigned keys[ptx::kHeldLogits];
#pragma unroll
  for (int i = 0; i < ptx::kHeldLogits; ++i) {
    const int expert = i * 32 + lane;
    keys[i] = 0;
    if (expert < logits.experts) {
      const float* parts = partials + warp * Shape::kParts * RouteChoice::kExpertsMax + expert;
      float sum = parts[0];
#pragma unroll
      for (int part = 1; part < Shape::kParts; ++part) sum += parts[part * RouteChoice::kExpertsMax];
      if (logits.bias != nullptr) sum += ptx::bf16_to_float(logits.bias[expert]);
      logits.logits[static_cast<long>(first_row + row) * logits.experts + expert] = sum;
      keys[i] = ptx::key_of(sum);
    }
  }
  ptx::choose_row(keys, choice.k, choice.chosen + (first_row + row) * choice.chosen_stride,
                  choice.weights + (first_row + row) * choice.weights_stride);
}

template <int kColumnBlocks>
void launch_blocks(const RouteLogits& logits, const RouteChoice& choice, cudaStream_t stream) {
  const int tiles = (logits.rows + 8 * kColumnBlocks - 1) / (8 * kColumnBlocks);
  rose::cuda::launch(
      &route_few_kernel<kColumnBlocks>, "route_few",
      {.grid = dim3(static_cast<unsigned>(tiles * Shape::kParts)),
       .block = dim3(Shape::kThreads),
       .shared_bytes = static_cast<std::size_t>(Shape::shared_bytes(logits.rows, logits.experts, logits.in)),
       .overlap_previous = true},
      stream, logits, choice, Shape::pitch(logits.in));
}

}  // namespace

void launch_route_few(const RouteLogits& logits, const RouteChoice& choice, cudaStream_t stream) {
  if (Shape::column_blocks(logits.rows, logits.experts) == 1) return launch_blocks<1>(logits, choice, stream);
  launch_blocks<2>(logits, choice, stream);
}

}  // namespace rose::ops::cuda
