#include "tensor/arena.h"

#include <algorithm>

namespace rose {

Arena::Arena(Device device, std::size_t bytes, std::string name)
    : device_(device), name_(std::move(name)), total_(aligned(bytes)) {
  slab_ = static_cast<std::byte*>(device_allocate(device, total_));
}

std::unique_ptr<Arena> Arena::host_of(Device device, std::size_t bytes, std::string name) {
  if (device.is_cpu()) return std::make_unique<Arena>(device, bytes, std::move(name));
  return std::unique_ptr<Arena>(new Arena(Device{}, std::move(name), aligned(bytes), pinned_allocate(aligned(bytes))));
}

Arena::Arena(Device device, std::string name, std::size_t total, void* slab)
    : device_(device), pinned_(true), name_(std::move(name)), slab_(static_cast<std::byte*>(slab)), total_(total) {}

Arena::~Arena() { pinned_ ? pinned_free(slab_) : device_free(device_, slab_); }

void Arena::reset() {
  used_ = 0;
  entries_.clear();
}

void Arena::zero() { device_fill(device_, slab_, 0, total_); }

void* Arena::take(std::string_view name, std::size_t bytes) {
  const std::size_t size = aligned(bytes);
  CHECK(size <= total_ - used_, "arena {}: {} wants {} bytes, {} of {} left", name_, name, size, total_ - used_,
        total_);
  void* pointer = slab_ + used_;
  used_ += size;
  entries_.push_back({std::string(name), size});
  return pointer;
}

Tensor Arena::tensor(std::string_view name, DType dtype, std::initializer_list<std::int64_t> sizes) {
  const Tensor shape(nullptr, dtype, device_, sizes);
  return Tensor(take(name, shape.bytes()), dtype, device_, sizes);
}

std::string Arena::table() const {
  std::vector<Entry> sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.bytes > b.bytes; });
  std::string text = fmt::format("{} on {}: {:.1f} MiB of {:.1f} MiB used\n", name_, device_.name(),
                                 static_cast<double>(used_) / (1 << 20), static_cast<double>(total_) / (1 << 20));
  for (const Entry& entry : sorted) {
    text += fmt::format("  {:<40} {:>14} B\n", entry.name, entry.bytes);
  }
  return text;
}

}  // namespace rose
