// Expert matrices from the stored format to another one, stripe by stripe: cut first, then converted, so that FP8 tiles
// start at the slice's own origin.
#pragma once

#include <vector>

#include "weights/stored.h"

namespace rose {

class StripeConverter {
 public:
  // to: the allocated weight, of another format than the stored one, or cut from FP8 tiles.
  StripeConverter(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, const Weight& to,
                  bool allow_inexact);

  // Independent jobs: 128 rows of one expert each (all rows where the stored matrix is transposed).
  std::size_t jobs() const;
  TileReport run(std::size_t job) const;

 private:
  struct Stripe;

  void read_mxfp4(Stripe& stripe) const;
  void read_floats(Stripe& stripe) const;
  void read_rows(const StoredRange& from, std::int64_t stored_row, std::int64_t rows, std::size_t row_bytes,
                 std::size_t skip, std::size_t take, void* to) const;
  void write_bf16(const Stripe& stripe) const;
  void write_mxfp4(const Stripe& stripe) const;
  void write_fp8(const Stripe& stripe, TileReport& report) const;
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
