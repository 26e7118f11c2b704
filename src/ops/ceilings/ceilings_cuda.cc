#include "ops/ceilings/ceilings_cuda.h"

#include "device/cuda/gpu.h"
#include "ops/ceilings/ceilings_params.cuh"

namespace rose::ops::cuda {
namespace {

using C = CeilingsConfig;

int memory_blocks(const Stream& stream) { return rose::cuda::multiprocessors(stream) * C::kBlocksPerSm; }

std::size_t vectors_of(const Tensor& tensor) {
  CHECK(tensor.contiguous() && tensor.bytes() % sizeof(uint4) == 0, "{}", tensor.describe());
  return tensor.bytes() / sizeof(uint4);
}

}  // namespace

void fill_random(const Stream& stream, const Tensor& to, std::uint64_t seed, float size) {
  CHECK(to.contiguous() && (to.dtype() == DType::kBf16 || to.dtype() == DType::kF32), "{}", to.describe());
  const FillParams params{.to = to.raw(), .count = static_cast<std::size_t>(to.elements()), .seed = seed, .size = size};
  launch_fill(to.dtype() == DType::kBf16 ? FillKind::kBf16 : FillKind::kF32, params, memory_blocks(stream),
              rose::cuda::native_stream(stream));
}

void fill_random_bytes(const Stream& stream, const Tensor& to, std::uint64_t seed, int low, int high) {
  CHECK(to.contiguous() && to.dtype() == DType::kU8 && low >= 0 && low <= high && high <= 255, "{} in [{}, {}]",
        to.describe(), low, high);
  launch_fill(
      FillKind::kBytes,
      {.to = to.raw(), .count = static_cast<std::size_t>(to.elements()), .seed = seed, .low = low, .high = high},
      memory_blocks(stream), rose::cuda::native_stream(stream));
}

void launch_nothing(const Stream& stream) {
  launch_nothing(rose::cuda::multiprocessors(stream), rose::cuda::native_stream(stream));
}

void read_all(const Stream& stream, const Tensor& from, const Tensor& sink) {
  launch_read(static_cast<const uint4*>(from.raw()), vectors_of(from), static_cast<unsigned*>(sink.raw()),
              memory_blocks(stream), rose::cuda::native_stream(stream));
}

void copy_all(const Stream& stream, const Tensor& from, const Tensor& to) {
  CHECK(from.bytes() == to.bytes(), "{} to {}", from.describe(), to.describe());
  launch_copy(static_cast<const uint4*>(from.raw()), static_cast<uint4*>(to.raw()), vectors_of(from),
              memory_blocks(stream), rose::cuda::native_stream(stream));
}

std::int64_t matrix_sink_elements(const Stream& stream) {
  return std::int64_t{rose::cuda::multiprocessors(stream)} * C::kWarpgroups * 128;
}

double multiply(const Stream& stream, MatrixFormat format, int iterations, const Tensor& sink) {
  CHECK(sink.elements() >= matrix_sink_elements(stream), "{}", sink.describe());
  const int blocks = rose::cuda::multiprocessors(stream);
  const bool e4m3 = format == MatrixFormat::kE4m3;
  launch_matrix(e4m3, iterations, sink.as<float>(), blocks, rose::cuda::native_stream(stream));
  const double depth = e4m3 ? C::kRowBytes : C::kRowBytes / 2.0;
  return 2.0 * blocks * C::kWarpgroups * 64 * C::kColumns * depth * iterations;
}

}  // namespace rose::ops::cuda
