// Expert matrices from the stored format to another one, stripe by stripe: cut first, then converted, so that FP8 tiles
// start at the slice's own origin.
#pragma once

#include <vector>

#include "weights/stored.h"

namespace rose {

class StripeConverter {
 public:
  // to: format and shape of the wanted weight, of another format than the stored one, or cut from FP8 tiles. Its memory
  // is not touched.
  StripeConverter(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, const Weight& to,
                  bool allow_inexact);

  // Independent jobs: 128 rows of one expert each (all rows where the stored matrix is transposed).
  std::size_t jobs() const;

  // The one run of bytes of the weight's payload, and of its scales, that a job makes.
  struct Extent {
    std::size_t payload = 0, payload_bytes = 0;
    std::size_t scales = 0, scale_bytes = 0;
  };
  Extent extent(std::size_t job) const;

  // Writes that run to payload and scales, which begin where the extent begins.
  TileReport run(std::size_t job, std::byte* payload, std::byte* scales) const;

 private:
  struct Stripe;

  Stripe stripe_of(std::size_t job) const;
  void read_mxfp4(Stripe& stripe) const;
  void read_floats(Stripe& stripe) const;
  void read_rows(const StoredRange& from, std::int64_t stored_row, std::int64_t rows, std::size_t row_bytes,
                 std::size_t skip, std::size_t take, void* to) const;
  void write_bf16(const Stripe& stripe, Bf16* to) const;
  void write_mxfp4(const Stripe& stripe, std::uint8_t* payload, std::uint8_t* scales) const;
  void write_fp8(const Stripe& stripe, F8E4M3* payload, float* scales, TileReport& report) const;
  std::string place(const Stripe& stripe) const;

  const StoredWeight& stored_;
  const WeightSpec& spec_;
  const WeightSlice& slice_;
  const Weight& to_;
  bool allow_inexact_;
  std::int64_t stripe_rows_;
  std::int64_t stripes_;  // of one expert
};

}  // namespace rose
