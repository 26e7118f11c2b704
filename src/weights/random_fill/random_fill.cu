// to[m, r, u] = value(key, first + m * matrix_stride + r * row_stride + u)
//
// Bound: bytes written. The experts of gpt-oss-120b are 57 GB of codes and 3.6 GB of scales: 15 ms at 4 TB/s. A hash is
// about 30 instructions for 8 bytes of codes, for a scale or for a bf16 element; with the index arithmetic some 20 ms
// of all lanes, and once at a start.
//
// Mapping: a grid-stride loop over units, neighbouring threads at neighbouring units, one store a unit (16 bytes of
// codes, one scale byte, one bf16 element). Row and matrix of a unit come from two divisions, in 32 bits.
#include "device/cuda/launch.cuh"
#include "weights/random_fill/random_fill_params.cuh"

namespace rose::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksMax = 8;  // of a multiprocessor: all its threads

template <RandomKind kKind>
__device__ inline void fill_unit(const RandomRegion& region, unsigned at, std::uint64_t index) {
  if constexpr (kKind == RandomKind::kBf16) {
    static_cast<std::uint16_t*>(region.to)[at] = random_bf16(region, index);
  } else if constexpr (kKind == RandomKind::kCodes) {
    static_cast<ulonglong2*>(region.to)[at] = {random_codes(region, index, 0), random_codes(region, index, 1)};
  } else {
    static_cast<std::uint8_t*>(region.to)[at] = random_scale(region, index);
  }
}

template <RandomKind kKind>
__global__ void __launch_bounds__(kThreads) random_fill_kernel(const __grid_constant__ RandomRegion region) {
  const auto rows = static_cast<unsigned>(region.rows), units = static_cast<unsigned>(region.units);
  const unsigned total = static_cast<unsigned>(region.matrices) * rows * units;
  // Neither at nor the step reaches 2^31, so their sum does not wrap.
  for (unsigned at = blockIdx.x * kThreads + threadIdx.x; at < total; at += gridDim.x * kThreads) {
    const unsigned row_of_all = at / units, unit = at - row_of_all * units;
    const unsigned matrix = row_of_all / rows, row = row_of_all - matrix * rows;
    const std::int64_t index = region.first + matrix * region.matrix_stride + row * region.row_stride + unit;
    fill_unit<kKind>(region, at, static_cast<std::uint64_t>(index));
  }
}

}  // namespace

void launch_random_fill(const RandomRegion& region, int multiprocessors, cudaStream_t stream) {
  const std::int64_t total = region.matrices * region.rows * region.units;
  const std::int64_t blocks = (total + kThreads - 1) / kThreads, most = std::int64_t{kBlocksMax} * multiprocessors;
  void (*kernel)(const RandomRegion) = &random_fill_kernel<RandomKind::kBf16>;
  if (region.kind == RandomKind::kCodes) kernel = &random_fill_kernel<RandomKind::kCodes>;
  if (region.kind == RandomKind::kScales) kernel = &random_fill_kernel<RandomKind::kScales>;
  launch(kernel, "random_fill",
         {.grid = dim3(static_cast<unsigned>(blocks < most ? blocks : most)), .block = dim3(kThreads)}, stream, region);
}

}  // namespace rose::cuda
