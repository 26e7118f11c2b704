#include "device/cpu/thread_pool.h"

#include "base/check.h"

namespace rose {
namespace {

// A decode step is hundreds of short jobs in a row: waiting workers spin this long before they sleep, since waking a
// sleeping thread costs more than the job.
constexpr int kSpins = 4000;

void relax() { __builtin_ia32_pause(); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1, "{} threads", threads);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_parts() {
  for (int part = next_.fetch_add(1); part < parts_; part = next_.fetch_add(1)) (*body_)(part);
}

void ThreadPool::run(int parts, const std::function<void(int part)>& body) {
  if (parts <= 1 || workers_.empty()) {
    for (int part = 0; part < parts; ++part) body(part);
    return;
  }
  std::lock_guard one_caller(caller_);
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    parts_ = parts;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  take_parts();
  // Every worker must have seen this job before body_ goes away.
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spins) relax();
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      seen = generation_.load();
    }
    if (stopping_) return;
    take_parts();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace rose
