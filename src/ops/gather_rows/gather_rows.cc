#include "ops/gather_rows/gather_rows.h"

#include "ops/check.h"
#include "ops/gather_rows/gather_rows_cuda.h"

namespace rose::ops {

void gather_rows(const Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out) {
  check_activations(stream, "gather_rows: x", x, -1, -1);
  check_tensor(stream, "gather_rows: rows", rows, {DType::kI32}, {-1});
  check_tensor(stream, "gather_rows: out", out, {x.dtype()}, {rows.size(0), x.size(1)});
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::gather_rows(stream, x, rows, out);
      return;
    case DeviceKind::kCuda:
      cuda::gather_rows(stream, x, rows, out);
      return;
  }
}

}  // namespace rose::ops
