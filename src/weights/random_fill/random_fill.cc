#include "weights/random_fill/random_fill.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "weights/random_fill/random_fill_cuda.h"

namespace rose {
namespace {

static_assert(std::endian::native == std::endian::little, "codes are written as words");

template <class T, class Value>
void fill_row(const RandomRegion& region, std::int64_t row, const Value& value) {
  const std::int64_t first =
      region.first + row / region.rows * region.matrix_stride + row % region.rows * region.row_stride;
  T* to = static_cast<T*>(region.to) + row * region.units;
  for (std::int64_t u = 0; u < region.units; ++u) to[u] = value(static_cast<std::uint64_t>(first + u));
}

struct Group {
  std::uint64_t low, high;
};

void fill_rows(const RandomRegion& region, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    switch (region.kind) {
      case RandomKind::kBf16:
        fill_row<std::uint16_t>(region, row, [&](std::uint64_t i) { return random_bf16(region, i); });
        break;
      case RandomKind::kCodes:
        fill_row<Group>(region, row, [&](std::uint64_t i) {
          return Group{random_codes(region, i, 0), random_codes(region, i, 1)};
        });
        break;
      case RandomKind::kScales:
        fill_row<std::uint8_t>(region, row, [&](std::uint64_t i) { return random_scale(region, i); });
        break;
    }
  }
}

}  // namespace

void random_fill(const Stream& stream, const RandomRegion& region) {
  CHECK(region.matrices >= 0 && region.rows >= 0 && region.units >= 0 && region.first >= 0, "{} x {} x {} from {}",
        region.matrices, region.rows, region.units, region.first);
  CHECK(region.center >= -(1 << 23) && region.center <= 1 << 23, "center {}", region.center);
  CHECK(region.kind != RandomKind::kScales || (region.exponent >= 2 && region.exponent <= 252), "exponent {}",
        region.exponent);
  if (region.matrices == 0 || region.rows == 0 || region.units == 0) return;
  if (!stream.device().is_cpu()) return cuda::random_fill(stream, region);
  constexpr std::int64_t kUnitsEach = 1 << 16;
  const auto grain = static_cast<std::size_t>(std::max<std::int64_t>(1, kUnitsEach / region.units));
  stream.parallel_for(static_cast<std::size_t>(region.matrices * region.rows), grain,
                      [&](std::size_t begin, std::size_t end) {
                        fill_rows(region, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
                      });
}

}  // namespace rose
