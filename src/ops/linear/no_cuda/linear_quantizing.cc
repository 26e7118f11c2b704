#include "ops/check.h"
#include "ops/linear/linear_quantizing_cuda.h"

namespace rose::ops::cuda {

void linear_quantizing(const Stream& stream, const Tensor&, const Weight&, const Tensor&, const Tensor&) {
  no_kernel("linear", stream);
}

}  // namespace rose::ops::cuda
