// An ordered queue of work on one device. A stream carries its device, so an operation takes a stream and nothing else
// to know where to run. The CPU stream runs at once, on the calling thread and the threads of its pool.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "device/device.h"

namespace rose {

class ThreadPool;  // device/cpu/thread_pool.h

// A point in a stream's work. On the CPU it has always been reached.
class Event {
 public:
  void wait() const;  // block the host until reached
  bool reached() const;
  double seconds_since(const Event& earlier) const;  // of two reached events of a GPU; 0 on the CPU

  std::shared_ptr<void> native;  // cudaEvent_t holder; null on the CPU
};

class Stream {
 public:
  static Stream cpu(int threads);  // threads >= 1: the caller plus threads - 1 pool threads

  static Stream cuda(int ordinal);  // its own, non-blocking

  Device device() const { return device_; }
  void* native() const { return native_.get(); }  // cudaStream_t; null on the CPU

  Event record() const;
  void wait(const Event& event) const;  // later work waits for the event
  void synchronize() const;

  // CPU only: body(begin, end) over parts of [0, count), each at least `grain` items where possible; returns when all
  // are done. The split depends on count, grain and the thread count alone.
  void parallel_for(std::size_t count, std::size_t grain,
                    const std::function<void(std::size_t begin, std::size_t end)>& body) const;
  int threads() const;

  Stream(Device device, std::shared_ptr<void> native, std::shared_ptr<ThreadPool> pool);

 private:
  Device device_;
  std::shared_ptr<void> native_;
  std::shared_ptr<ThreadPool> pool_;
};

// Copies in stream order; either side may be host memory (for CUDA: pinned, to be asynchronous).
void copy_async(const Stream& stream, void* destination, const void* source, std::size_t bytes);

}  // namespace rose
