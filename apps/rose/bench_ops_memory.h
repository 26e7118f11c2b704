// Device memory that an operation is timed on, filled with random numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose {

// Fills device memory with uniform random numbers, in stream order.
struct RandomFill {
  std::function<void(const Stream&, const Tensor&, std::uint64_t seed, float size)>
      numbers;  // bf16, f32: [-size, size)
  std::function<void(const Stream&, const Tensor&, std::uint64_t seed, int low, int high)> bytes;  // u8: [low, high]
};

// Memory of one operation's inputs and outputs; all of it goes at once.
class OpMemory {
 public:
  OpMemory(Stream stream, RandomFill fill) : stream_(std::move(stream)), fill_(std::move(fill)) {}
  ~OpMemory();
  OpMemory(const OpMemory&) = delete;
  OpMemory& operator=(const OpMemory&) = delete;

  const Stream& stream() const { return stream_; }
  // Activations: bf16 on a GPU; a CPU computes in f32.
  DType activations() const { return stream_.device().is_cpu() ? DType::kF32 : DType::kBf16; }
  // Memory that inputs are made from, gone when they are there.
  template <class Make>
  void with_staging(const Make& make) {
    OpMemory staging(stream_, fill_);
    staging.seed_ = seed_;
    make(staging);
    seed_ = staging.seed_;
    stream_.synchronize();
  }

  // Aligned to 1024 bytes, every byte `byte`: 0xff reads as NaN or -1, so that an output left unwritten shows.
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> sizes, int byte = 0xff);
  Tensor random(DType dtype, std::initializer_list<std::int64_t> sizes, float size = 1);
  void randomize(const Tensor& numbers, float size = 1);  // bf16, f32
  Tensor random_bytes(std::initializer_list<std::int64_t> sizes, int low, int high);
  Tensor integers(const std::vector<std::int32_t>& values, std::initializer_list<std::int64_t> sizes);
  void* bytes(std::size_t count, int byte);
  void copy_in(void* to, const void* from, std::size_t count);

 private:
  Stream stream_;
  RandomFill fill_;
  std::vector<void*> owned_;
  std::uint64_t seed_ = 0;
};

}  // namespace rose
