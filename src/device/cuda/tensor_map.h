// Tensor maps for TMA: made on the host, passed to kernels by value.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

namespace rose::cuda {

enum class Swizzle { kNone, k128 };
enum class MapType { kBf16, kByte, kF32 };  // kByte: e4m3 too

inline constexpr std::uint64_t map_type_bytes(MapType type) {
  return type == MapType::kBf16 ? 2 : type == MapType::kF32 ? 4 : 1;
}

// Innermost dimension first. strides[i] is the distance in bytes between neighbours of dimension i + 1 (the innermost
// is dense). TMA wants base and strides in multiples of 16 bytes; with k128 the box row must be at most 128 bytes.
template <int kRank>
struct TensorMapShape {
  std::array<std::uint64_t, kRank> sizes;
  std::array<std::uint64_t, kRank - 1> strides;
  std::array<std::uint32_t, kRank> box;
};

CUtensorMap make_tensor_map(const void* base, MapType type, int rank, const std::uint64_t* sizes,
                            const std::uint64_t* strides, const std::uint32_t* box, Swizzle swizzle);

template <int kRank>
CUtensorMap make_tensor_map(const void* base, MapType type, const TensorMapShape<kRank>& shape, Swizzle swizzle) {
  return make_tensor_map(base, type, kRank, shape.sizes.data(), shape.strides.data(), shape.box.data(), swizzle);
}

// A row-major matrix [rows, columns] whose rows lie `stride` elements apart, cut in boxes of box_rows x box_columns.
CUtensorMap matrix_map(const void* base, MapType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                       int box_rows, int box_columns, Swizzle swizzle);

}  // namespace rose::cuda
