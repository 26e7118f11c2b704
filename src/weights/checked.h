// Arithmetic on sizes that came from a file: an overflow is a bad file, not undefined behaviour.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace rose {

inline std::optional<std::uint64_t> checked_product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t product = 1;
  bool zero = false;
  for (const std::uint64_t factor : factors) zero = zero || factor == 0;
  if (zero) return 0;
  for (const std::uint64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

inline std::optional<std::uint64_t> checked_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace rose
