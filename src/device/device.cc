#include "device/device.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/result.h"
#include "device/backend.h"

namespace rose {

std::string Device::name() const { return is_cpu() ? "cpu" : fmt::format("cuda:{}", ordinal); }

std::size_t device_memory_free(Device device) {
  if (!device.is_cpu()) return cuda::memory_free(device.ordinal);
  // MemAvailable counts what the page cache would give back; _SC_AVPHYS_PAGES does not.
  std::size_t available =
      static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (std::FILE* file = std::fopen("/proc/meminfo", "r")) {
    char line[128];
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof line, file)) {
      if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = static_cast<std::size_t>(kib) << 10;
    }
    std::fclose(file);
  }
  return available;
}

void* device_allocate(Device device, std::size_t bytes) {
  if (!device.is_cpu()) return cuda::allocate(device.ordinal, bytes);
  // Linux grants memory that is not there and kills the process when it is touched: refuse before.
  const std::size_t available = device_memory_free(device);
  if (bytes > available) {
    throw StartError(fmt::format("not enough memory: {:.2f} GiB asked, {:.2f} GiB available",
                                 static_cast<double>(bytes) / (1 << 30), static_cast<double>(available) / (1 << 30)),
                     kExitDoesNotFit);
  }
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* pointer = std::aligned_alloc(4096, rounded == 0 ? 4096 : rounded);
  if (pointer == nullptr)
    throw StartError(fmt::format("the system refused {} bytes of memory", bytes), kExitDoesNotFit);
  return pointer;
}

void device_free(Device device, void* pointer) noexcept {
  if (!device.is_cpu()) return cuda::deallocate(device.ordinal, pointer);
  std::free(pointer);
}

}  // namespace rose
