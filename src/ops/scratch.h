// Working memory of CPU paths whose contract passes no scratch. Held as a thread_local of the operation: grown to the
// largest step seen and then reused, so that a running server no longer allocates.
#pragma once

#include <cstdint>
#include <memory>

namespace rose::ops {

class Scratch {
 public:
  // At least `count` floats, 64-byte aligned, contents undefined; valid until the next call.
  float* floats(std::int64_t count);

 private:
  struct Free {
    void operator()(float* pointer) const;
  };
  std::unique_ptr<float, Free> floats_;
  std::int64_t size_ = 0;
};

}  // namespace rose::ops
