#include "device/cuda/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "device/cuda/check.h"

namespace rose::cuda {
namespace {

// The encoder lives in the driver library, which this program must not link: it starts where there is no driver.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled: 12.0 or newer is needed");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  return function;
}

CUtensorMapDataType native_type(MapType type) {
  switch (type) {
    case MapType::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case MapType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case MapType::kByte:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

}  // namespace

CUtensorMap make_tensor_map(const void* base, MapType type, int rank, const std::uint64_t* sizes,
                            const std::uint64_t* strides, const std::uint32_t* box, Swizzle swizzle) {
  CUtensorMap map{};
  constexpr std::uint32_t kDense[5] = {1, 1, 1, 1, 1};
  const CUresult status = encoder()(&map, native_type(type), static_cast<cuuint32_t>(rank), const_cast<void*>(base),
                                    sizes, strides, box, kDense, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    swizzle == Swizzle::k128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(status == CUDA_SUCCESS, "tensor map of {} dims, inner size {}, box {} x {}: error {}", rank, sizes[0], box[0],
        rank > 1 ? box[1] : 1, static_cast<int>(status));
  return map;
}

CUtensorMap matrix_map(const void* base, MapType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                       int box_rows, int box_columns, Swizzle swizzle) {
  return make_tensor_map<2>(base, type,
                            {{static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)},
                             {static_cast<std::uint64_t>(stride) * map_type_bytes(type)},
                             {static_cast<std::uint32_t>(box_columns), static_cast<std::uint32_t>(box_rows)}},
                            swizzle);
}

}  // namespace rose::cuda
