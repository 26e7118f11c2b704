// A position in a ring of shared-memory stages, and the parity of the barriers there.
#pragma once

namespace rose::ptx {

template <int kStages>
struct Ring {
  int stage = 0;
  int phase = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace rose::ptx
