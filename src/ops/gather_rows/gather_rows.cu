// out[i] = x[rows[i]]
//
// Bound: bytes, each read and written once. 128 rows of 2880 bf16 are 1.5 MB, less than the launch itself.
//
// Mapping: a block copies a piece of one row, four units a thread, all four loads before the first store. The unit is
// 16 bytes; rows that do not begin or end there (none of a model's) are copied two bytes at a time.
#include "device/cuda/launch.cuh"
#include "ops/gather_rows/gather_rows_params.cuh"
#include "ops/ptx/barrier.cuh"

namespace rose::ops::cuda {
namespace {

template <class Unit>
__global__ void __launch_bounds__(GatherRowsParams::kThreads)
    gather_rows_kernel(const __grid_constant__ GatherRowsParams params) {
  constexpr int kUnits = GatherRowsParams::kPieceUnits / GatherRowsParams::kThreads;
  ptx::dependency_wait();
  const std::int64_t to = blockIdx.x / params.pieces;
  const int piece = blockIdx.x % params.pieces;
  const int from = params.rows[to];
  const bool known = from >= 0 && from < params.sources;
  const auto* source = reinterpret_cast<const Unit*>(params.x + (known ? from * params.x_stride : 0));
  auto* target = reinterpret_cast<Unit*>(params.out + to * params.out_stride);
  const int first = piece * GatherRowsParams::kPieceUnits + threadIdx.x;
  Unit units[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int at = first + i * GatherRowsParams::kThreads;
    units[i] = Unit{};
    if (known && at < params.width) units[i] = source[at];
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int at = first + i * GatherRowsParams::kThreads;
    if (at < params.width) target[at] = units[i];
  }
  ptx::dependents_launch();
}

}  // namespace

void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream) {
  rose::cuda::launch(params.unit_bytes == 16 ? &gather_rows_kernel<uint4> : &gather_rows_kernel<std::uint16_t>,
                     "gather_rows",
                     {.grid = dim3(static_cast<unsigned>(params.count) * static_cast<unsigned>(params.pieces)),
                      .block = dim3(GatherRowsParams::kThreads),
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
