// Which tile a linear runs with: a pure function of the shape, so that it can be tested without a GPU.
#pragma once

#include <cstdint>

namespace rose::ops {

struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;
};

// Output tile of one thread block: `m` rows by `n` output features.
struct LinearTile {
  int m = 0;
  int n = 0;
};

// Up to here the kernels for few rows run (linear_batch_cuda.h, linear_swapped_cuda.h), beyond tiles of 128 rows.
inline constexpr int kFewRowsMax = 128;

// Share of the scheduled tile area that is useful output, with `multiprocessors` tiles running at once.
constexpr double tile_efficiency(const LinearShape& shape, const LinearTile& tile, int multiprocessors) {
  const std::int64_t tiles = ((shape.rows + tile.m - 1) / tile.m) * ((shape.out + tile.n - 1) / tile.n);
  const std::int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
  return static_cast<double>(shape.rows * shape.out) / static_cast<double>(waves * multiprocessors * tile.m * tile.n);
}

// Wider tiles read each operand fewer times; below this share of the best efficiency that no longer pays.
constexpr LinearTile choose_linear_tile(const LinearShape& shape, int multiprocessors) {
  constexpr LinearTile kTiles[] = {{128, 256}, {128, 192}, {128, 160}, {128, 128}};
  constexpr double kReuse[] = {1.0, 0.97, 0.89, 0.93};  // relative speed of a full wave, widest first
  LinearTile best = kTiles[0];
  double best_score = 0;
  for (int i = 0; i < 4; ++i) {
    const double score = tile_efficiency(shape, kTiles[i], multiprocessors) * kReuse[i];
    if (score > best_score) {
      best_score = score;
      best = kTiles[i];
    }
  }
  return best;
}

// Features of a tile of 128 rows in FP8. The wider tile is slower in its main loop (850 against 976 TFLOP/s at 8192 x
// 5120 x 2880) and pays only where it saves a wave.
constexpr int choose_linear_fp8_width(const LinearShape& shape, int multiprocessors) {
  const double wide = tile_efficiency(shape, {128, 160}, multiprocessors) * 0.87;
  return wide > tile_efficiency(shape, {128, 128}, multiprocessors) ? 160 : 128;
}

static_assert(choose_linear_fp8_width({.rows = 8192, .out = 5120, .in = 2880}, 132) == 128);
static_assert(choose_linear_fp8_width({.rows = 512, .out = 5120, .in = 2880}, 132) == 160);
static_assert(choose_linear_tile({.rows = 1024, .out = 256, .in = 256}, 132).n == 128);
static_assert(choose_linear_tile({.rows = 1024, .out = 5120, .in = 2880}, 132).n == 160);
static_assert(choose_linear_tile({.rows = 2048, .out = 5120, .in = 2880}, 132).n == 128);
static_assert(choose_linear_tile({.rows = 1024, .out = 2880, .in = 4096}, 132).n == 192);
static_assert(choose_linear_tile({.rows = 8192, .out = 5120, .in = 2880}, 132).n == 256);

}  // namespace rose::ops
