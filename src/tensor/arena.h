// The only owner of activations, KV and weights: one slab taken at start, handed out as named tensors, never freed
// singly. The table says where the memory went.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace rose {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 256;

  // Takes `bytes` of the device at once. Throws StartError (kExitDoesNotFit) when they are not there.
  Arena(Device device, std::size_t bytes, std::string name);
  // Host memory for copies to and from `device`: pinned where that is a GPU, so that they run asynchronously.
  static std::unique_ptr<Arena> host_of(Device device, std::size_t bytes, std::string name);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Contents are zero on the CPU. Running out is our bug: the size is computed from the same list that is handed out.
  Tensor tensor(std::string_view name, DType dtype, std::initializer_list<std::int64_t> sizes);
  void* take(std::string_view name, std::size_t bytes);

  // Takes back everything that was handed out.
  void reset();

  // Every byte 0, before anything uses it. (On the CPU it begins so.)
  void zero();

  Device device() const { return device_; }
  std::size_t bytes_used() const { return used_; }
  std::size_t bytes_total() const { return total_; }
  std::string table() const;  // name, bytes; largest first

  static std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  Arena(Device device, std::string name, std::size_t total, void* slab);

  struct Entry {
    std::string name;
    std::size_t bytes;
  };
  Device device_;
  bool pinned_ = false;
  std::string name_;
  std::byte* slab_ = nullptr;
  std::size_t total_ = 0;
  std::size_t used_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace rose
