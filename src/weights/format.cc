#include "weights/format.h"

#include <algorithm>

#include "base/result.h"
#include "weights/bf16/bf16.h"
#include "weights/checked.h"
#include "weights/fp8/fp8.h"
#include "weights/mxfp4/mxfp4.h"

namespace rose {

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
#define ROSE_X(enumerator, name) \
  case WeightFormat::enumerator: \
    return name;
    ROSE_WEIGHT_FORMATS(ROSE_X)
#undef ROSE_X
  }
  CHECK(false, "weight format {}", static_cast<int>(format));
}

std::optional<WeightFormat> weight_format_from_name(std::string_view name) {
#define ROSE_X(enumerator, text) \
  if (name == (text)) return WeightFormat::enumerator;
  ROSE_WEIGHT_FORMATS(ROSE_X)
#undef ROSE_X
  return std::nullopt;
}

std::size_t Weight::bytes() const {
  std::size_t sum = 0;
  for (const Tensor* tensor : {&payload, &scales, &bias}) {
    if (!tensor->empty()) sum += tensor->bytes();
  }
  return sum;
}

WeightSizes weight_sizes(WeightFormat format, std::int64_t experts, std::int64_t out, std::int64_t in) {
  if (experts < 0 || out < 0 || in < 0) {
    throw StartError(fmt::format("a weight of shape [{}, {}, {}] cannot be", experts, out, in));
  }
  const std::uint64_t count = experts == 0 ? 1 : static_cast<std::uint64_t>(experts);
  const auto rows = static_cast<std::uint64_t>(out);
  const auto columns = static_cast<std::uint64_t>(in);
  const auto ceil_tiles = [](std::uint64_t size) { return size / kFp8Tile + (size % kFp8Tile != 0); };
  std::optional<std::uint64_t> payload;
  std::optional<std::uint64_t> scales = 0;
  switch (format) {
    case WeightFormat::kBf16:
      payload = checked_product({count, rows, columns, 2});
      break;
    case WeightFormat::kFp8:
      payload = checked_product({count, rows, columns});
      scales = checked_product({count, ceil_tiles(rows), ceil_tiles(columns), sizeof(float)});
      break;
    case WeightFormat::kMxfp4:
      if (in % kMxfp4Group != 0)
        throw StartError(fmt::format("mxfp4 needs rows of whole groups of 32: {} columns", in));
      payload = checked_product({count, rows, columns / 2});
      scales = checked_product({count, rows, columns / kMxfp4Group});
      break;
  }
  // 2^62: what is left keeps sums of several weights, and signed arithmetic, in range.
  constexpr std::uint64_t kBytesMax = 1ull << 62;
  if (!payload || !scales || *payload > kBytesMax || *scales > kBytesMax) {
    throw StartError(fmt::format("a weight of shape [{}, {}, {}] is beyond 64-bit sizes", experts, out, in));
  }
  return {*payload, *scales};
}

void decode_row(const Weight& weight, std::int64_t expert, std::int64_t row, float* out) {
  CHECK(expert >= 0 && expert < std::max<std::int64_t>(weight.experts, 1), "expert {} of {}", expert, weight.experts);
  CHECK(row >= 0 && row < weight.out, "row {} of {}", row, weight.out);
  CHECK(weight.payload.device().is_cpu(), "{}", weight.payload.describe());
  const std::int64_t flat = expert * weight.out + row;
  switch (weight.format) {
    case WeightFormat::kBf16:
      bf16::decode_row(weight.payload.as<Bf16>() + flat * weight.in, weight.in, out);
      break;
    case WeightFormat::kFp8: {
      const std::int64_t tile_rows = (weight.out + kFp8Tile - 1) / kFp8Tile;
      const std::int64_t tile_columns = (weight.in + kFp8Tile - 1) / kFp8Tile;
      const float* scales = weight.scales.as<float>() + (expert * tile_rows + row / kFp8Tile) * tile_columns;
      fp8::decode_row(weight.payload.as<F8E4M3>() + flat * weight.in, scales, 0, weight.in, out);
      break;
    }
    case WeightFormat::kMxfp4:
      mxfp4::decode_row(weight.payload.as<std::uint8_t>() + flat * (weight.in / 2),
                        weight.scales.as<std::uint8_t>() + flat * (weight.in / kMxfp4Group), weight.in, out);
      break;
  }
}

}  // namespace rose
