// The inputs of each operation of the list, in device memory, and the launch to be timed. Works on any device.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "bench_ops_cases.h"
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
  // Aligned to 1024 bytes, every byte `byte`: 0xff reads as NaN or -1, so that an output left unwritten shows.
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> sizes, int byte = 0xff);
  Tensor random(DType dtype, std::initializer_list<std::int64_t> sizes, float size = 1);
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

// `copies` sets of what must come from memory and not from the cache; launch(i) works on the i-th.
struct PreparedOp {
  std::unique_ptr<OpMemory> memory = {};
  int copies = 1;
  std::function<void(int copy)> launch = {};
  std::vector<Tensor> outputs = {};  // written by launch(0)
};

// As many copies as make `cold_bytes` together, at most kCopiesMax. Throws StartError where the memory does not hold
// them.
inline constexpr int kCopiesMax = 128;
PreparedOp prepare_op(const OpCase& c, const Stream& stream, const RandomFill& fill, double cold_bytes);

// Numbers of the outputs that were not written or are NaN; of large outputs the last 64 MiB are looked at.
std::int64_t bad_numbers(const PreparedOp& op);

}  // namespace rose
