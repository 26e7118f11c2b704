// A device is a place for memory and work: the CPU, or one CUDA GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rose {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;

  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  std::string name() const;  // "cpu", "cuda:0"
  friend bool operator==(const Device&, const Device&) = default;
};

// Memory of a device, aligned to at least 256 bytes, zero on the CPU; throws StartError (kExitDoesNotFit) naming the
// sizes when it does not fit.
void* device_allocate(Device device, std::size_t bytes);
void device_free(Device device, void* pointer) noexcept;

// Host memory that copies to and from GPUs run asynchronously from; zero. Only in a process that uses a GPU: it makes
// the driver take memory there.
void* pinned_allocate(std::size_t bytes);
void pinned_free(void* pointer) noexcept;

// Sets `bytes` bytes of the device's memory, before anything runs on it: not in stream order.
void device_fill(Device device, void* pointer, int byte, std::size_t bytes);

// Bytes that can still be taken on the device.
std::size_t device_memory_free(Device device);

}  // namespace rose
