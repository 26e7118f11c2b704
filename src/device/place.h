// Where the calling thread stands in a step: part of the message when a GPU's error ends the process. A kernel's fault
// is seen by whatever asks next; with CUDA_LAUNCH_BLOCKING=1 and without graphs that is the launch of the kernel
// itself.
#pragma once

namespace rose {

struct Place {
  int layer = -1;  // -1: outside of the layers
  int rows = 0;    // of the step
};

inline Place& current_place() {
  thread_local Place place;
  return place;
}

}  // namespace rose
