#include "device/stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/cpu/thread_pool.h"

namespace rose {

void Event::wait() const { CHECK(native == nullptr, "no CUDA back end in this build"); }
bool Event::reached() const {
  CHECK(native == nullptr, "no CUDA back end in this build");
  return true;
}

Stream::Stream(Device device, std::shared_ptr<void> native, std::shared_ptr<ThreadPool> pool)
    : device_(device), native_(std::move(native)), pool_(std::move(pool)) {}

Stream Stream::cpu(int threads) { return Stream(Device{}, nullptr, std::make_shared<ThreadPool>(threads)); }

Event Stream::record() const { return {}; }
void Stream::wait(const Event& event) const { event.wait(); }
void Stream::synchronize() const {}

int Stream::threads() const { return pool_ ? pool_->threads() : 1; }

void Stream::parallel_for(std::size_t count, std::size_t grain,
                          const std::function<void(std::size_t, std::size_t)>& body) const {
  CHECK(device_.is_cpu() && grain > 0, "parallel_for on {}, grain {}", device_.name(), grain);
  if (count == 0) return;
  // Four parts a thread where the grain allows: uneven parts then still end at about the same time.
  const auto most = static_cast<std::size_t>(threads() == 1 ? 1 : threads() * 4);
  const std::size_t parts = std::clamp<std::size_t>(count / grain, 1, most);
  if (parts == 1) {
    body(0, count);
    return;
  }
  pool_->run(static_cast<int>(parts), [&](int part) {
    const auto p = static_cast<std::size_t>(part);
    body(count * p / parts, count * (p + 1) / parts);
  });
}

void copy_async(const Stream& stream, void* destination, const void* source, std::size_t bytes) {
  CHECK(stream.device().is_cpu(), "no CUDA back end in this build");
  if (bytes != 0) std::memcpy(destination, source, bytes);
}

}  // namespace rose
