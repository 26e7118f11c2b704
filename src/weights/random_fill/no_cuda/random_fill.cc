#include "base/check.h"
#include "weights/random_fill/random_fill_cuda.h"

namespace rose::cuda {

void random_fill(const Stream& stream, const RandomRegion&) {
  check_failed(__FILE__, __LINE__, "random_fill", "this build has no kernel for " + stream.device().name());
}

}  // namespace rose::cuda
