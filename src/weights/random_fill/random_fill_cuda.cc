#include "weights/random_fill/random_fill_cuda.h"

#include "base/check.h"
#include "device/backend.h"
#include "device/cuda/gpu.h"
#include "weights/random_fill/random_fill_params.cuh"

namespace rose::cuda {

void random_fill(const Stream& stream, const RandomRegion& region) {
  CHECK(region.matrices <= kRandomUnitsMax && region.rows <= kRandomUnitsMax && region.units <= kRandomUnitsMax &&
            region.matrices * region.rows <= kRandomUnitsMax / region.units,
        "{} x {} x {} units", region.matrices, region.rows, region.units);
  CHECK(region.kind != RandomKind::kCodes || reinterpret_cast<std::uintptr_t>(region.to) % 16 == 0, "codes at {}",
        region.to);
  make_current(stream.device().ordinal);
  launch_random_fill(region, multiprocessors(stream), native_stream(stream));
}

}  // namespace rose::cuda
