// Tests and benchmarks on a GPU: copies of host tensors on the device, and back.
#pragma once

#include <vector>

#include "device/backend.h"
#include "device/stream.h"
#include "ops/testing/random.h"
#include "tensor/tensor.h"

namespace rose::ops::testing {

class Gpu {
 public:
  Gpu() : stream(Stream::cuda(0)) {}
  ~Gpu() {
    for (void* pointer : owned_) device_free(stream.device(), pointer);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Device memory shaped like `host`, every byte `poison`.
  Tensor like(const Tensor& host, int poison = 0xff) {
    const std::size_t bytes = std::max<std::size_t>(host.bytes(), 1);
    void* pointer = device_allocate(stream.device(), bytes);
    owned_.push_back(pointer);
    rose::cuda::fill(0, pointer, poison, bytes);
    return host.on(pointer, stream.device());
  }
  Tensor upload(const Tensor& host) {
    if (host.empty()) return host;
    const Tensor copy = like(host);
    copy_async(stream, copy.raw(), host.raw(), host.bytes());
    stream.synchronize();
    return copy;
  }
  Weight upload(const Weight& host) {
    Weight copy = host;
    copy.payload = upload(host.payload);
    copy.scales = upload(host.scales);
    copy.bias = upload(host.bias);
    return copy;
  }
  void download(const Tensor& device, const Tensor& host) {
    copy_async(stream, host.raw(), device.raw(), device.bytes());
    stream.synchronize();
  }

  Stream stream;

 private:
  std::vector<void*> owned_;
};

}  // namespace rose::ops::testing
