// A recorded piece of a CUDA stream's work, launched as one. On the CPU there is nothing to record: callers run the
// work.
#pragma once

#include <memory>

#include "device/stream.h"

namespace rose {

class Graph {
 public:
  Graph() = default;
  bool empty() const { return native_ == nullptr; }
  void launch(const Stream& stream) const;  // once more, on the stream's device

  // Records what `body` launches on the stream. The body must not allocate, wait or copy from pageable memory.
  template <class Body>
  static Graph capture(const Stream& stream, const Body& body) {
    begin(stream);
    body();
    return end(stream);
  }

 private:
  static void begin(const Stream& stream);
  static Graph end(const Stream& stream);
  std::shared_ptr<void> native_;
};

}  // namespace rose
