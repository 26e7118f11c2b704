// Where a thread stands in a step: part of the message when a GPU's error or a step that never ends (engine/watchdog.h)
// ends the process. A kernel's fault is seen by whatever asks next; with CUDA_LAUNCH_BLOCKING=1 and without graphs that
// is the launch of the kernel itself.
#pragma once

#include <atomic>

namespace rose {

struct Place {
  int layer = -1;              // -1: outside of the layers
  int rows = 0;                // of the step
  const char* operation = "";  // a literal; "": between operations
};

// One thread's place: set by that thread alone, read by any. A reader that comes between two stores sees the fields of
// two neighbouring places; nobody decides anything by them.
class ThreadPlace {
 public:
  void set(const Place& place) {
    layer_.store(place.layer, std::memory_order_relaxed);
    rows_.store(place.rows, std::memory_order_relaxed);
    enter(place.operation);
  }
  void enter(const char* operation) { operation_.store(operation, std::memory_order_relaxed); }
  Place get() const {
    return {.layer = layer_.load(std::memory_order_relaxed),
            .rows = rows_.load(std::memory_order_relaxed),
            .operation = operation_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<int> layer_{-1}, rows_{0};
  std::atomic<const char*> operation_{""};
};

inline ThreadPlace& current_place() {  // of the calling thread, valid until it ends
  thread_local ThreadPlace place;
  return place;
}

// The calling thread is in `operation` while this lives, then where it was.
class PlaceOf {
 public:
  explicit PlaceOf(const char* operation) : before_(current_place().get().operation) {
    current_place().enter(operation);
  }
  ~PlaceOf() { current_place().enter(before_); }
  PlaceOf(const PlaceOf&) = delete;
  PlaceOf& operator=(const PlaceOf&) = delete;

 private:
  const char* before_;
};

}  // namespace rose
