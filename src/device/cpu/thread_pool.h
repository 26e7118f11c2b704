// The threads of a CPU stream. One job at a time; the caller works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rose {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // threads >= 1, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(part) for part in [0, parts), each exactly once; returns when all are done.
  void run(int parts, const std::function<void(int part)>& body);

 private:
  void work();
  void take_parts();

  std::mutex caller_;  // one run() at a time
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};  // a new job was posted
  std::atomic<bool> stopping_{false};
  const std::function<void(int)>* body_ = nullptr;
  int parts_ = 0;
  std::atomic<int> next_{0};
  std::atomic<int> busy_{0};  // workers that may still touch body_
  std::vector<std::thread> workers_;
};

}  // namespace rose
