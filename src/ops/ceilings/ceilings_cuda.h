// What a GPU can do at most, measured with kernels that do nothing else, and random numbers to measure with. For
// benchmarks: an operation's time means something beside these.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose::ops::cuda {

// Uniform numbers, made on the device; equal seeds give equal numbers.
void fill_random(const Stream& stream, const Tensor& to, std::uint64_t seed, float size);               // bf16, f32
void fill_random_bytes(const Stream& stream, const Tensor& to, std::uint64_t seed, int low, int high);  // u8

// A kernel of one block on each SM that does nothing: what a launch costs.
void launch_nothing(const Stream& stream);

// Each runs once. Buffers are multiples of 16 bytes, far larger than the cache.
void read_all(const Stream& stream, const Tensor& from, const Tensor& sink);  // sink: i32 [1]
void copy_all(const Stream& stream, const Tensor& from, const Tensor& to);

enum class MatrixFormat : std::uint8_t { kBf16, kE4m3 };
// Multiplies on all SMs and returns the FLOPs that this is. sink: f32 [matrix_sink_elements()].
double multiply(const Stream& stream, MatrixFormat format, int iterations, const Tensor& sink);
std::int64_t matrix_sink_elements(const Stream& stream);

}  // namespace rose::ops::cuda
