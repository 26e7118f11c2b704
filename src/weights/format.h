// The closed list of weight formats, and the weight they encode. Compute layout: payload row-major [out, in] (with a
// leading [experts] for expert weights), groups along `in`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/tensor.h"

namespace rose {

//   X(enumerator, "name")
#define ROSE_WEIGHT_FORMATS(X) \
  X(kBf16, "bf16")             \
  X(kFp8, "fp8")               \
  X(kMxfp4, "mxfp4")

enum class WeightFormat : std::uint8_t {
#define ROSE_X(enumerator, name) enumerator,
  ROSE_WEIGHT_FORMATS(ROSE_X)
#undef ROSE_X
};

std::string_view weight_format_name(WeightFormat format);
std::optional<WeightFormat> weight_format_from_name(std::string_view name);

inline constexpr std::int64_t kMxfp4Group = 32;  // weights along `in` sharing one e8m0 scale
inline constexpr std::int64_t kFp8Tile = 128;    // FP8 scale tile: 128 rows x 128 columns

// y = x . W^T + bias, per expert where experts > 0.
//
//   format  payload                                   scales
//   bf16    bf16 [experts,] out, in                   none
//   fp8     f8_e4m3 [experts,] out, in                f32 [experts,] ceil(out/128), ceil(in/128); powers of two
//   mxfp4   u8 [experts,] out, in/2                   u8 (e8m0) [experts,] out, in/32
//           low nibble = even element
//   bias    bf16 [experts,] out                       or empty
struct Weight {
  WeightFormat format = WeightFormat::kBf16;
  std::int64_t experts = 0;  // 0: an ordinary matrix
  std::int64_t out = 0;
  std::int64_t in = 0;
  Tensor payload;
  Tensor scales;
  Tensor bias;

  bool empty() const { return payload.empty(); }
  std::size_t bytes() const;  // payload + scales + bias
};

// Bytes of payload and scales of a whole weight (experts 0: one matrix). Sizes come from files: overflow is a
// StartError.
struct WeightSizes {
  std::uint64_t payload = 0;
  std::uint64_t scales = 0;
};
WeightSizes weight_sizes(WeightFormat format, std::int64_t experts, std::int64_t out, std::int64_t in);

// Row `row` of expert `expert` (0 for an ordinary matrix) as floats: the slow, exact decode that every fast path is
// tested against. out has weight.in elements. CPU tensors only.
void decode_row(const Weight& weight, std::int64_t expert, std::int64_t row, float* out);

}  // namespace rose
