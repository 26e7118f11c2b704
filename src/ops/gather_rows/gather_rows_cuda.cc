#include "ops/gather_rows/gather_rows_cuda.h"

#include <limits>

#include "device/cuda/gpu.h"
#include "ops/gather_rows/gather_rows_params.cuh"

namespace rose::ops::cuda {

void gather_rows(const Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out) {
  if (out.elements() == 0) return;
  const auto element = static_cast<std::int64_t>(dtype_bytes(x.dtype()));
  GatherRowsParams params{};
  params.x = static_cast<const std::uint8_t*>(x.raw());
  params.rows = rows.as<std::int32_t>();
  params.out = static_cast<std::uint8_t*>(out.raw());
  params.x_stride = x.stride(0) * element;
  params.out_stride = out.stride(0) * element;
  const std::int64_t row_bytes = x.size(1) * element;
  const auto places = reinterpret_cast<std::uintptr_t>(x.raw()) | reinterpret_cast<std::uintptr_t>(out.raw());
  const auto steps = static_cast<std::uintptr_t>(row_bytes | params.x_stride | params.out_stride);
  params.unit_bytes = (places | steps) % 16 == 0 ? 16 : 2;
  params.width = static_cast<int>(row_bytes / params.unit_bytes);
  params.sources = static_cast<int>(x.size(0));
  params.count = static_cast<int>(out.size(0));
  params.pieces = (params.width + GatherRowsParams::kPieceUnits - 1) / GatherRowsParams::kPieceUnits;
  CHECK(row_bytes / params.unit_bytes <= std::numeric_limits<std::int32_t>::max() - GatherRowsParams::kPieceUnits &&
            out.size(0) * params.pieces <= std::numeric_limits<std::int32_t>::max(),
        "gather_rows on {}: {} from {}", stream.device().name(), out.describe(), x.describe());
  launch_gather_rows(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
