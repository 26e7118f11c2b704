#include "ops/testing/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/testing/random.h"

namespace rose::ops::testing {
namespace {

std::string place(const Tensor& tensor, std::int64_t index) {
  std::string text;
  for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
    text = fmt::format("{}{}{}", index % tensor.size(dim), text.empty() ? "" : ", ", text);
    index /= tensor.size(dim);
  }
  return "[" + text + "]";
}

void check_comparable(const Tensor& got, const Tensor& want) {
  CHECK(got.rank() == want.rank() && got.contiguous() && want.contiguous(), "{} and {}", got.describe(),
        want.describe());
  for (int dim = 0; dim < got.rank(); ++dim) {
    CHECK(got.size(dim) == want.size(dim), "{} and {}", got.describe(), want.describe());
  }
}

// How far beyond its bound, as a ratio; above 1 is a failure. Unlike non-finite values are infinitely far.
double excess(double got, double want, double allowed) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : HUGE_VAL;
  if (std::isinf(got) || std::isinf(want)) return got == want ? 0 : HUGE_VAL;
  if (std::isnan(allowed)) return HUGE_VAL;
  const double apart = std::fabs(got - want);
  if (apart <= allowed) return allowed > 0 ? apart / allowed : 0;
  return allowed > 0 ? apart / allowed : HUGE_VAL;
}

}  // namespace

Bound bound(double absolute, double relative) {
  return [=](std::int64_t, double want) { return absolute + relative * std::fabs(want); };
}

std::string difference(const Tensor& got, const Tensor& want, const Bound& bound) {
  check_comparable(got, want);
  std::int64_t wrong = 0;
  std::int64_t worst = -1;
  double worst_excess = 1;
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const double far = excess(element(got, i), element(want, i), bound(i, element(want, i)));
    if (!(far > 1)) continue;
    ++wrong;
    if (worst >= 0 && far <= worst_excess) continue;
    worst = i;
    worst_excess = far;
  }
  if (wrong == 0) return "";
  const double a = element(got, worst);
  const double b = element(want, worst);
  return fmt::format("{} of {} elements beyond their bound; worst at {}: got {}, want {}, {:.3g} apart, {:.3g} allowed",
                     wrong, got.elements(), place(got, worst), a, b, std::fabs(a - b), bound(worst, b));
}

std::string bit_difference(const Tensor& got, const Tensor& want) {
  check_comparable(got, want);
  CHECK(got.dtype() == want.dtype(), "{} and {}", got.describe(), want.describe());
  const std::size_t bytes = dtype_bytes(got.dtype());
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const std::size_t offset = static_cast<std::size_t>(i) * bytes;
    if (std::memcmp(static_cast<const char*>(got.raw()) + offset, static_cast<const char*>(want.raw()) + offset,
                    bytes) != 0) {
      return fmt::format("first unlike bits at {}: {} and {}", place(got, i), element(got, i), element(want, i));
    }
  }
  return "";
}

}  // namespace rose::ops::testing
