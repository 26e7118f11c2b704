// logits[rows, experts] = x[rows, in] . W[experts, in]^T + bias      bf16 operands, f32 accumulation and result
//
// Bound: for 8192 rows of 2880 and 128 experts 47 MB of x (10 us); 6 GFLOP are 8 us on the tensor cores. What binds is
// L2: every block reads the whole W tile, 0.74 MB beside 0.37 MB of x, in sum 141 MB.
//
// Mapping: a block has 64 rows x kExperts experts; two halves of the experts times four groups of 16 rows are its eight
// warps. Tiles of 64 along `in` (one 128-byte row, 16-byte units swizzled by row) come by cp.async through kStages
// buffers. While blocks of all experts would leave multiprocessors idle, blocks have 32 experts.
#include "device/cuda/launch.cuh"
#include "ops/ptx/barrier.cuh"
#include "ops/ptx/convert.cuh"
#include "ops/ptx/mma.cuh"
#include "ops/route/route_params.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kRows = 64;
constexpr int kWidth = 64;  // elements of `in` in a tile
constexpr int kThreads = 256;
constexpr int kStages = 4;

template <int kExperts>
struct RouteTiles {
  static constexpr int kStageBytes = (kRows + kExperts) * kWidth * 2;
  static constexpr int kBlocks = kExperts / 2 / 8;  // 8-expert column blocks of a warp
  static_assert(kBlocks % 2 == 0);
};

__device__ inline std::uint32_t swizzled(std::uint32_t tile, int row, int unit) {
  return tile + static_cast<std::uint32_t>(row * 128 + (unit ^ (row % 8)) * 16);
}

// Tile `step` of x and of W; zeros past their ends.
template <int kExperts>
__device__ inline void load_tiles(const RouteLogits& params, std::uint32_t stage, int step, int first_row,
                                  int first_expert) {
  const int unit = threadIdx.x % 8, k = step * kWidth + unit * 8;
#pragma unroll
  for (int line = 0; line < kRows + kExperts; line += kThreads / 8) {
    const int at = line + threadIdx.x / 8;  // kRows is a multiple of 32: a whole round is either x or W
    const bool is_x = line < kRows;
    const int index = is_x ? first_row + at : first_expert + at - kRows;
    const bool valid = k < params.in && index < (is_x ? params.rows : params.experts);
    const std::uint16_t* from =
        is_x ? params.x + index * params.x_stride : params.weight + static_cast<long>(index) * params.in;
    ptx::copy_async_16(swizzled(stage, at, unit), valid ? from + k : params.weight, valid);
  }
}

template <int kExperts>
__device__ inline void multiply_tiles(float (&sums)[RouteTiles<kExperts>::kBlocks][4], std::uint32_t stage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp % 4 * 16 + lane % 16;
  const int expert = kRows + warp / 4 * (kExperts / 2) + lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    std::uint32_t a[4];
    ptx::ldmatrix_x4(a, swizzled(stage, row, 2 * k + lane / 16));
#pragma unroll
    for (int block = 0; block < RouteTiles<kExperts>::kBlocks; block += 2) {
      std::uint32_t b[4];  // both halves of k for eight experts, then for the next eight
      ptx::ldmatrix_x4(b, swizzled(stage, expert + block * 8, 2 * k + lane / 8 % 2));
      ptx::mma_bf16(sums[block], a, b[0], b[1]);
      ptx::mma_bf16(sums[block + 1], a, b[2], b[3]);
    }
  }
}

__device__ inline void store_logit(const RouteLogits& params, int row, int expert, float sum) {
  if (row >= params.rows || expert >= params.experts) return;
  if (params.bias != nullptr) sum += ptx::bf16_to_float(params.bias[expert]);
  params.logits[static_cast<long>(row) * params.experts + expert] = sum;
}

template <int kExperts>
__global__ void __launch_bounds__(kThreads) route_logits_kernel(const RouteLogits params) {
  using Tiles = RouteTiles<kExperts>;
  extern __shared__ float4 shared[];
  const std::uint32_t tiles = (ptx::shared_address(shared) + 127) / 128 * 128;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_row = static_cast<int>(blockIdx.x) * kRows, first_expert = static_cast<int>(blockIdx.y) * kExperts;
  const int steps = (params.in + kWidth - 1) / kWidth;
  ptx::dependents_launch();
  ptx::dependency_wait();
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) load_tiles<kExperts>(params, tiles + step * Tiles::kStageBytes, step, first_row, first_expert);
    ptx::copy_async_commit();
  }
  float sums[Tiles::kBlocks][4] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::copy_async_wait<kStages - 2>();
    __syncthreads();  // tile `step` is here, and everybody is done with the buffer of the one before
    const int next = step + kStages - 1;
    if (next < steps) {
      load_tiles<kExperts>(params, tiles + next % kStages * Tiles::kStageBytes, next, first_row, first_expert);
    }
    ptx::copy_async_commit();
    multiply_tiles<kExperts>(sums, tiles + step % kStages * Tiles::kStageBytes);
  }
#pragma unroll
  for (int block = 0; block < Tiles::kBlocks; ++block) {
    const int row = first_row + warp % 4 * 16 + lane / 4;
    const int expert = first_expert + warp / 4 * (kExperts / 2) + block * 8 + lane % 4 * 2;
    store_logit(params, row, expert, sums[block][0]);
    store_logit(params, row, expert + 1, sums[block][1]);
    store_logit(params, row + 8, expert, sums[block][2]);
    store_logit(params, row + 8, expert + 1, sums[block][3]);
  }
}

template <int kExperts>
void launch_tiles(const RouteLogits& params, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>((params.rows + kRows - 1) / kRows);
  const auto experts = static_cast<unsigned>((params.experts + kExperts - 1) / kExperts);
  rose::cuda::launch(&route_logits_kernel<kExperts>, "route_logits",
                     {.grid = dim3(rows, experts),
                      .block = dim3(kThreads),
                      .shared_bytes = kStages * RouteTiles<kExperts>::kStageBytes + 127,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace

void launch_route_logits(const RouteLogits& params, int multiprocessors, cudaStream_t stream) {
  const int row_tiles = (params.rows + kRows - 1) / kRows;
  if (params.experts > 32 && 2 * row_tiles > multiprocessors) return launch_tiles<128>(params, stream);
  launch_tiles<32>(params, stream);
}

}  // namespace rose::ops::cuda
