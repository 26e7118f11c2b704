#include "device/stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/backend.h"
#include "device/cpu/thread_pool.h"
#include "device/graph.h"

namespace rose {

void Event::wait() const {
  if (native != nullptr) cuda::synchronize_event(native.get());
}
bool Event::reached() const { return native == nullptr || cuda::reached(native.get()); }
double Event::seconds_since(const Event& earlier) const {
  if (native == nullptr || earlier.native == nullptr) return 0;
  return static_cast<double>(cuda::milliseconds_between(earlier.native.get(), native.get())) * 1e-3;
}

Stream::Stream(Device device, std::shared_ptr<void> native, std::shared_ptr<ThreadPool> pool)
    : device_(device), native_(std::move(native)), pool_(std::move(pool)) {}

Stream Stream::cpu(int threads) { return Stream(Device{}, nullptr, std::make_shared<ThreadPool>(threads)); }

Stream Stream::cuda(int ordinal) {
  return Stream(Device{DeviceKind::kCuda, ordinal}, cuda::create_stream(ordinal), nullptr);
}

Event Stream::record() const { return device_.is_cpu() ? Event{} : Event{cuda::record(native_.get())}; }

void Stream::wait(const Event& event) const {
  if (event.native != nullptr) cuda::wait(native_.get(), event.native.get());
}

void Stream::synchronize() const {
  if (!device_.is_cpu()) cuda::synchronize(native_.get());
}

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
  if (bytes == 0) return;
  if (!stream.device().is_cpu()) return cuda::copy(stream.native(), destination, source, bytes);
  std::memcpy(destination, source, bytes);
}

void Graph::begin(const Stream& stream) {
  CHECK(!stream.device().is_cpu(), "graphs are for CUDA streams");
  cuda::begin_capture(stream.native());
}

Graph Graph::end(const Stream& stream) {
  Graph graph;
  graph.native_ = cuda::end_capture(stream.native());
  return graph;
}

void Graph::launch(const Stream& stream) const { cuda::launch_graph(native_.get(), stream.native()); }

}  // namespace rose
