#include "weights/staging.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/backend.h"

namespace rose {

Staging::Staging(Device target, std::size_t buffer_bytes, int buffers) : target_(target), buffer_bytes_(buffer_bytes) {
  CHECK(buffer_bytes > 0 && buffers > 0, "{} buffers of {} bytes", buffers, buffer_bytes);
  const std::size_t bytes = buffer_bytes * static_cast<std::size_t>(buffers);
  memory_ = static_cast<std::byte*>(target.is_cpu() ? device_allocate(target, bytes) : cuda::allocate_pinned(bytes));
  for (int i = 0; i < buffers; ++i) free_.push_back({memory_ + static_cast<std::size_t>(i) * buffer_bytes, {}});
}

Staging::~Staging() {
  for (const Buffer& buffer : free_) buffer.copied.wait();
  target_.is_cpu() ? device_free(target_, memory_) : cuda::deallocate_pinned(memory_);
}

void Staging::put(const Stream& stream, std::byte* to, std::size_t bytes,
                  const std::function<void(std::byte*)>& write) {
  CHECK(bytes <= buffer_bytes_, "{} bytes into a buffer of {}", bytes, buffer_bytes_);
  Buffer buffer;
  {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return !free_.empty(); });
    buffer = free_.front();
    free_.erase(free_.begin());
  }
  const auto give_back = [&] {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(buffer);
    }
    freed_.notify_one();
  };
  try {
    buffer.copied.wait();
    write(buffer.memory);
  } catch (...) {
    give_back();
    throw;
  }
  // An event belongs to the device that is current where it is made, and must be the stream's.
  if (!stream.device().is_cpu()) cuda::make_current(stream.device().ordinal);
  copy_async(stream, to, buffer.memory, bytes);
  buffer.copied = stream.record();
  give_back();
}

void Delivery::put(std::byte* to, std::size_t bytes, const std::function<void(std::byte*)>& write) const {
  if (bytes == 0) return;
  if (in_place()) return write(to);
  staging_->put(*stream_, to, bytes, write);
}

void Delivery::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, most());
    put(to, part, [&](std::byte* where) { std::memcpy(where, from, part); });
    to += part;
    from += part;
    bytes -= part;
  }
}

}  // namespace rose
