#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "ops/parallel.h"
#include "ops/quantize_weight/quantize_weight.h"
#include "weights/bf16/bf16.h"
#include "weights/fp8/fp8.h"

namespace rose::ops::ref {

void quantize_weight(const Stream& stream, const Weight& from, const Weight& to, const Tensor& not_finite) {
  const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
  const std::int64_t in = from.in, tile_columns = tiles(in);
  std::atomic<std::int32_t> found = 0;
  for_each_piece(stream, tiles(from.out), [&](std::int64_t tile_row) {
    const std::int64_t first = tile_row * kFp8Tile, rows = std::min(kFp8Tile, from.out - first);
    std::vector<float> values(static_cast<std::size_t>(rows * in));
    bf16::decode_row(from.payload.as<Bf16>() + first * in, rows * in, values.data());
    const auto bad = std::count_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
    found += static_cast<std::int32_t>(bad);
    if (bad > 0) return;
    for (std::int64_t tile = 0; tile < tile_columns; ++tile) {
      const std::int64_t column = tile * kFp8Tile;
      fp8::encode_tile(values.data() + column, in, rows, std::min(kFp8Tile, in - column),
                       to.payload.as<F8E4M3>() + first * in + column, in,
                       to.scales.as<float>() + tile_row * tile_columns + tile);
    }
  });
  *not_finite.as<std::int32_t>() += found;
}

}  // namespace rose::ops::ref
