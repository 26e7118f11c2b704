#include "ops/check.h"
#include "ops/quantize_weight/quantize_weight_cuda.h"

namespace rose::ops::cuda {

void quantize_weight(const Stream& stream, const Weight&, const Weight&, const Tensor&) {
  no_kernel("quantize_weight", stream);
}

}  // namespace rose::ops::cuda
