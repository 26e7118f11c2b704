// The loader's way into an arena: host memory is written where it is; a device's memory is written to small pinned
// buffers, from which copies run while other threads fill other buffers. No weight is ever whole on the host.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "device/stream.h"

namespace rose {

// A fixed set of buffers, shared by all threads and streams that load.
class Staging {
 public:
  // Pinned where `target` is a GPU; ordinary memory where it is the CPU (only tests go this way).
  Staging(Device target, std::size_t buffer_bytes, int buffers);
  ~Staging();  // waits for the copies
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::size_t buffer_bytes() const { return buffer_bytes_; }

  // write(buffer) gives `bytes` (at most buffer_bytes) bytes, which are then copied to `to` in the stream's order;
  // returns before they arrive. Waits for a free buffer first. What write throws passes through; nothing is copied
  // then.
  void put(const Stream& stream, std::byte* to, std::size_t bytes, const std::function<void(std::byte*)>& write);

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    Event copied;
  };

  Device target_;
  std::size_t buffer_bytes_;
  std::byte* memory_ = nullptr;
  std::vector<Buffer> free_;  // oldest copy first
  std::mutex mutex_;
  std::condition_variable freed_;
};

// One load's way: in place, or through staging and a stream (both must outlive it).
class Delivery {
 public:
  Delivery() = default;  // in place
  Delivery(Staging& staging, const Stream& stream) : staging_(&staging), stream_(&stream) {}

  bool in_place() const { return staging_ == nullptr; }
  // Most bytes of one put().
  std::size_t most() const { return in_place() ? std::numeric_limits<std::size_t>::max() : staging_->buffer_bytes(); }

  // write(where) writes `bytes` bytes, which are or will be at `to`.
  void put(std::byte* to, std::size_t bytes, const std::function<void(std::byte*)>& write) const;
  // The same from memory, of any length.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;

 private:
  Staging* staging_ = nullptr;
  const Stream* stream_ = nullptr;
};

}  // namespace rose
