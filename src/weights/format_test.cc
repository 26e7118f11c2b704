// Properties of the three weight formats. Oracles are double arithmetic written out here.
#include "weights/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "weights/bf16/bf16.h"
#include "weights/fp8/fp8.h"
#include "weights/mxfp4/mxfp4.h"

namespace rose {
namespace {

constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double mxfp4_value(int code, int scale) {
  const double magnitude = std::ldexp(kMagnitudes[code & 7], scale - 127);
  return code >= 8 ? -magnitude : magnitude;
}

// [rows, columns] of MXFP4 filled by rule.
struct Codes {
  std::int64_t rows, columns;
  std::vector<std::uint8_t> codes, scales;

  Codes(std::int64_t rows_, std::int64_t columns_, std::uint8_t scale, std::uint8_t byte = 0)
      : rows(rows_),
        columns(columns_),
        codes(static_cast<std::size_t>(rows_ * columns_ / 2), byte),
        scales(static_cast<std::size_t>(rows_ * columns_ / 32), scale) {}

  int code(std::int64_t row, std::int64_t column) const {
    const std::uint8_t byte = codes[static_cast<std::size_t>((row * columns + column) / 2)];
    return column % 2 == 0 ? byte & 15 : byte >> 4;
  }
  double value(std::int64_t row, std::int64_t column) const {
    return mxfp4_value(code(row, column), scales[static_cast<std::size_t>((row * columns + column) / 32)]);
  }
};

struct Tile {
  std::vector<F8E4M3> payload;
  float scale = 0;
  fp8::TileOutcome outcome;
};
Tile encode(const Codes& from) {
  Tile tile{std::vector<F8E4M3>(static_cast<std::size_t>(from.rows * from.columns)), 0, {}};
  tile.outcome = fp8::encode_tile_mxfp4(from.codes.data(), from.columns / 2, from.scales.data(), from.columns / 32,
                                        from.rows, from.columns, tile.payload.data(), from.columns, &tile.scale);
  return tile;
}
double tile_value(const Tile& tile, std::size_t at) {
  return static_cast<double>(to_float(tile.payload[at])) * static_cast<double>(tile.scale);
}

TEST(WeightFormat, NamesGoBothWays) {
  for (const char* name : {"bf16", "fp8", "mxfp4"}) {
    ASSERT_TRUE(weight_format_from_name(name).has_value());
    EXPECT_EQ(weight_format_name(*weight_format_from_name(name)), name);
  }
  EXPECT_FALSE(weight_format_from_name("MXFP4").has_value());
  EXPECT_FALSE(weight_format_from_name("").has_value());
}

TEST(WeightFormat, SizesThatOverflowAreRefused) {
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(weight_sizes(WeightFormat::kBf16, 1 << 20, huge, huge), StartError);
  EXPECT_THROW(weight_sizes(WeightFormat::kFp8, 0, -1, 4), StartError);
  EXPECT_THROW(weight_sizes(WeightFormat::kMxfp4, 0, 4, 33), StartError);
  const WeightSizes sizes = weight_sizes(WeightFormat::kFp8, 32, 5760, 2880);
  EXPECT_EQ(sizes.payload, 32u * 5760 * 2880);
  EXPECT_EQ(sizes.scales, 32u * 45 * 23 * 4);
}

TEST(Mxfp4, PublishedExampleDecodes) {  // byte 0xF1 with scale 126: +0.25 and -3.0
  std::vector<std::uint8_t> codes(16, 0xf1);
  const std::uint8_t scale = 126;
  float out[32];
  mxfp4::decode_row(codes.data(), &scale, 32, out);
  EXPECT_EQ(out[0], 0.25f);
  EXPECT_EQ(out[1], -3.0f);
}

TEST(Mxfp4, EveryCodeAtEveryScaleDecodesExactly) {
  std::vector<std::uint8_t> codes(16);
  for (std::size_t i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(i << 4 | (15 - i));
  for (int scale = 0; scale < 255; ++scale) {
    const auto byte = static_cast<std::uint8_t>(scale);
    float out[32];
    Bf16 half[32];
    mxfp4::decode_row(codes.data(), &byte, 32, out);
    const bool exact = mxfp4::to_bf16_row(codes.data(), &byte, 32, half);
    EXPECT_EQ(exact, scale <= 252) << scale;  // every code is in the row
    for (int i = 0; i < 32; ++i) {
      const int code = i % 2 == 0 ? 15 - i / 2 : i / 2;
      const double expected = mxfp4_value(code, scale);
      if (std::fabs(expected) > static_cast<double>(std::numeric_limits<float>::max())) continue;
      ASSERT_EQ(static_cast<double>(out[i]), expected) << "code " << code << " scale " << scale;
      ASSERT_EQ(std::signbit(out[i]), code >= 8) << "code " << code << " scale " << scale;
      ASSERT_EQ(to_float(half[i]), out[i]);
      ASSERT_EQ(std::signbit(to_float(half[i])), code >= 8);
    }
  }
  EXPECT_TRUE(std::isnan(mxfp4::scale_value(255)));
}

TEST(Mxfp4, EncodingDecodedValuesGivesThemBack) {
  for (int scale = 3; scale <= 252; ++scale) {  // below 3 a group of small codes would need a scale below 2^-127
    for (int largest = 0; largest < 8; ++largest) {
      float values[32], again[32];
      for (int i = 0; i < 32; ++i) {
        const int code = (i / 2) % (largest + 1);
        values[i] = static_cast<float>(mxfp4_value(code + (i % 2 == 0 ? 0 : 8), scale));
      }
      std::uint8_t codes[16], byte = 0;
      mxfp4::encode_row(values, 32, codes, &byte);
      mxfp4::decode_row(codes, &byte, 32, again);
      for (int i = 0; i < 32; ++i) {
        ASSERT_EQ(again[i], values[i]) << "scale " << scale << " largest code " << largest;
        ASSERT_EQ(std::signbit(again[i]), std::signbit(values[i]));
      }
    }
  }
}

TEST(Mxfp4, EncodingTakesTheNearestCodeAndTheEvenOneOfTwo) {
  for (std::uint64_t trial = 0; trial < 400; ++trial) {
    float values[32], decoded[32];
    for (std::uint64_t i = 0; i < 32; ++i) {
      const float sign = random_bits(3, trial * 64 + i) % 2 == 0 ? 1.0f : -1.0f;
      // Multiples of 1/8 up to 8, so that ties and saturation happen.
      values[i] = sign * static_cast<float>(random_bits(4, trial * 64 + i) % 65) / 8.0f;
    }
    std::uint8_t codes[16], byte = 0;
    mxfp4::encode_row(values, 32, codes, &byte);
    mxfp4::decode_row(codes, &byte, 32, decoded);
    double amax = 0;
    for (const float value : values) amax = std::max(amax, std::fabs(static_cast<double>(value)));
    if (amax == 0) continue;
    EXPECT_EQ(byte - 127, static_cast<int>(std::floor(std::log2(amax))) - 2);  // OCP MX: amax's exponent less e2m1's
    for (int i = 0; i < 32; ++i) {
      double best = 1e30;
      int best_code = 0;
      for (int code = 0; code < 8; ++code) {
        const double error = std::fabs(mxfp4_value(code, byte) - std::fabs(static_cast<double>(values[i])));
        if (error < best || (error == best && code % 2 == 0)) {
          best = error;
          best_code = code;
        }
      }
      ASSERT_EQ(std::fabs(static_cast<double>(decoded[i])), mxfp4_value(best_code, byte)) << values[i];
    }
  }
}

TEST(Mxfp4, AGroupOfZerosHasAFiniteScaleAndKeepsItsSigns) {
  float values[32] = {};
  for (int i = 0; i < 32; i += 3) values[i] = -0.0f;
  std::uint8_t codes[16], byte = 255;
  mxfp4::encode_row(values, 32, codes, &byte);
  EXPECT_EQ(byte, 127);
  float out[32];
  mxfp4::decode_row(codes, &byte, 32, out);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 0.0f);
    EXPECT_EQ(std::signbit(out[i]), i % 3 == 0);
  }
}

TEST(Fp8, TileExponentIsTheSmallestThatHoldsTheLargestValue) {
  EXPECT_EQ(fp8::tile_exponent(0), 0);
  for (int e = -120; e < 120; ++e) {
    EXPECT_EQ(fp8::tile_exponent(std::ldexp(448.0, e)), e);
    EXPECT_EQ(fp8::tile_exponent(std::ldexp(448.0, e) * 1.001), e + 1);
    EXPECT_EQ(fp8::tile_exponent(std::ldexp(6.0, e)), std::max(e - 6, -126));
  }
  EXPECT_EQ(fp8::tile_exponent(0x1p-140), -126);
}

// Section 3.3 of the format's description: with the extreme codes present a tile is exact iff its exponents span <= 14.
TEST(Fp8, TilesOfMxfp4AreExactUpToASpreadOf14) {
  for (int spread = 0; spread <= 20; ++spread) {
    Codes from(128, 128, 100);
    for (std::size_t i = 0; i < from.codes.size(); ++i) from.codes[i] = static_cast<std::uint8_t>(i * 0x1b + 0x71);
    from.scales[5] = static_cast<std::uint8_t>(100 + spread);
    for (std::size_t i = 0; i < 16; ++i) from.codes[5 * 16 + i] = 0x7f;  // 6 in the group of the largest exponent
    for (std::size_t i = 0; i < 16; ++i) from.codes[i] = 0x19;           // 0.5 in one of the smallest
    const Tile tile = encode(from);
    EXPECT_EQ(tile.outcome.spread, spread);
    EXPECT_EQ(tile.outcome.exact, spread <= 14) << spread;
    bool same = true;
    for (std::int64_t i = 0; i < 128 * 128; ++i) {
      same = same && tile_value(tile, static_cast<std::size_t>(i)) == from.value(i / 128, i % 128);
    }
    EXPECT_EQ(same, tile.outcome.exact) << spread;  // what it says of itself is what decoding finds
    int exponent = 0;
    EXPECT_EQ(std::frexp(tile.scale, &exponent), 0.5f) << "a power of two";
  }
}

TEST(Fp8, AZeroGroupOfAnyScaleDoesNotCount) {
  Codes from(4, 64, 120, 0x22);
  from.scales[3] = 1;  // far away, but its group is zero
  for (std::size_t i = 0; i < 16; ++i) from.codes[3 * 16 + i] = i % 2 == 0 ? 0x08 : 0x80;
  const Tile tile = encode(from);
  EXPECT_TRUE(tile.outcome.exact);
  EXPECT_EQ(tile.outcome.spread, 0);
  EXPECT_TRUE(std::signbit(to_float(tile.payload[64 + 32])));  // -0 stays -0
  const Tile zero = encode(Codes(4, 64, 254));
  EXPECT_TRUE(zero.outcome.exact);
  EXPECT_EQ(zero.outcome.spread, -1);
  EXPECT_EQ(zero.scale, 1.0f);
}

TEST(Fp8, EveryCodeAtEveryScaleIsExactAlone) {
  for (int scale = 0; scale < 255; ++scale) {
    Codes from(1, 32, static_cast<std::uint8_t>(scale));
    for (std::size_t i = 0; i < 16; ++i) from.codes[i] = static_cast<std::uint8_t>(i << 4 | i);
    const Tile tile = encode(from);
    ASSERT_TRUE(tile.outcome.exact) << scale;
    for (std::int64_t i = 0; i < 32; ++i) {
      ASSERT_EQ(tile_value(tile, static_cast<std::size_t>(i)), from.value(0, i)) << scale << " element " << i;
    }
    ASSERT_GE(tile.scale, std::numeric_limits<float>::min()) << "a normal float";
  }
}

TEST(Fp8, TheFastWayFromMxfp4EqualsTheWayThroughFloats) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Codes from(37, 96, 0);
    for (std::size_t i = 0; i < from.codes.size(); ++i) from.codes[i] = static_cast<std::uint8_t>(random_bits(seed, i));
    const std::uint64_t spread = 1 + seed;  // up to 30: exact, subnormal, rounded, flushed
    for (std::size_t i = 0; i < from.scales.size(); ++i) {
      from.scales[i] = static_cast<std::uint8_t>(100 + random_bits(seed + 100, i) % spread);
    }
    std::vector<float> values(37 * 96);
    for (std::int64_t i = 0; i < 37 * 96; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(from.value(i / 96, i % 96));
    Tile slow{std::vector<F8E4M3>(values.size()), 0, {}};
    slow.outcome.exact = fp8::encode_tile(values.data(), 96, 37, 96, slow.payload.data(), 96, &slow.scale);
    const Tile fast = encode(from);
    EXPECT_EQ(fast.scale, slow.scale);
    EXPECT_EQ(fast.payload, slow.payload);
    EXPECT_EQ(fast.outcome.exact, slow.outcome.exact);
  }
}

TEST(Fp8, RoundsToTheNearestOfItsValues) {
  std::vector<double> grid;
  for (int bits = 0; bits < 0x7f; ++bits)
    grid.push_back(static_cast<double>(to_float(F8E4M3{static_cast<std::uint8_t>(bits)})));
  std::vector<float> values(64 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = (random_unit(7, i) - 0.5f) * std::ldexp(1.0f, static_cast<int>(i % 24) - 12);
  }
  Tile tile{std::vector<F8E4M3>(values.size()), 0, {}};
  EXPECT_FALSE(fp8::encode_tile(values.data(), 64, 64, 64, tile.payload.data(), 64, &tile.scale));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double scaled = std::fabs(static_cast<double>(values[i])) / static_cast<double>(tile.scale);
    double best = 1e30;
    for (const double step : grid) best = std::min(best, std::fabs(step - scaled));
    const double found = std::fabs(static_cast<double>(to_float(tile.payload[i])));
    ASSERT_EQ(std::fabs(found - scaled), best) << values[i];
    ASSERT_LE(found, 448.0);
  }
}

TEST(Bf16, TransposeMovesEveryElement) {
  const std::int64_t in = 70, out = 45;
  std::vector<Bf16> from(static_cast<std::size_t>(in * out)), to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<std::uint16_t>(i);
  bf16::transpose(from.data(), in, out, to.data());
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t o = 0; o < out; ++o) {
      ASSERT_EQ(to[static_cast<std::size_t>(o * in + i)], from[static_cast<std::size_t>(i * out + o)]);
    }
  }
}

}  // namespace
}  // namespace rose
