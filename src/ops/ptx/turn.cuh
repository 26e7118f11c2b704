// Cosine and sine of an angle in f32: reduced to [-pi/4, pi/4] in f64, exact to k * 6e-17 after k quarter turns; there
// a Taylor polynomial of f32 is good to 2^-22.
#pragma once

namespace rose::ptx {

struct Turn {
  float cosine, sine;
};

// For |angle| up to 2^31.
__device__ inline Turn turn_of(float angle) {
  constexpr double kQuarter = 1.5707963267948966;
  const double quarters = rint(static_cast<double>(angle) * (1 / kQuarter));
  const auto r = static_cast<float>(fma(-quarters, kQuarter, static_cast<double>(angle)));
  const float square = r * r;
  const float sine =
      fmaf(r * square, fmaf(square, fmaf(square, fmaf(square, 1.f / 362880, -1.f / 5040), 1.f / 120), -1.f / 6), r);
  const float cosine =
      fmaf(square, fmaf(square, fmaf(square, fmaf(square, 1.f / 40320, -1.f / 720), 1.f / 24), -1.f / 2), 1.f);
  const int quadrant = static_cast<int>(quarters) & 3;
  const Turn turn = (quadrant & 1) != 0 ? Turn{sine, cosine} : Turn{cosine, sine};
  return {((quadrant + 1) & 2) != 0 ? -turn.cosine : turn.cosine, (quadrant & 2) != 0 ? -turn.sine : turn.sine};
}

}  // namespace rose::ptx
