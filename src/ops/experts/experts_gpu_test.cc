// The FP8 products against a double-precision computation that rounds where the kernels do: x to e4m3 with one scale
// for 256 neighbours, the activation to e4m3 of 8 a, each weighted row to bf16. What is left is the accumulation (FP8
// WGMMA keeps about 13 bits inside a step of 256), bf16 rounding of the rows (2^-9 each, at most 4 of them) and
// activations that fall on the other side of a rounding edge: an error of 2^-13 of a sum meets an edge, 2^-3 of the
// number apart, for a few in a thousand of them, and each such flip is up to 2^-3 of one of the `intermediate` terms.
// So the norm of the difference stays far under 1 % over all rows. In one row a single flip may hit the term that makes
// most of its norm: under 8 %, while a wrong scale, a swapped nibble, a row of somebody else or a missed bias is more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/experts/experts_gpu_problem.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;
using testing::OwnedWeight;

constexpr int kTop = 4;
constexpr cuda::ExpertTiles kAllTiles[] = {cuda::ExpertTiles::kNarrow, cuda::ExpertTiles::kWide};

enum class Choice { kSpread, kAllTakeTheSame, kMostTakeOne };

struct Case {
  const char* name;
  int rows, hidden, intermediate, experts, held, first;
  Choice choice = Choice::kSpread;
  WeightFormat format = WeightFormat::kMxfp4;
  bool down_bias = true;
};

std::uint64_t unsigned_of(int value) { return static_cast<std::uint64_t>(value); }

// Rounded to e4m3 with a scale for every 256 numbers.
std::vector<double> quantized_row(const Tensor& x, int row) {
  const auto width = static_cast<int>(x.size(1));
  std::vector<double> out;
  for (int begin = 0; begin < width; begin += 256) {
    const int end = std::min(width, begin + 256);
    float largest = 0;
    for (int i = begin; i < end; ++i) largest = std::max(largest, std::fabs(to_float(x.row<Bf16>(row)[i])));
    const float scale = largest > 0 ? largest / 448.f : 1.f, inverse = 1.f / scale;
    for (int i = begin; i < end; ++i)
      out.push_back(static_cast<double>(to_float(to_f8e4m3(to_float(x.row<Bf16>(row)[i]) * inverse))) * scale);
  }
  return out;
}

class Decoded {
 public:
  explicit Decoded(const Weight& weight)
      : weight_(weight), numbers_(static_cast<std::size_t>(weight.experts * weight.out * weight.in)) {
    for (std::int64_t e = 0; e < weight.experts; ++e) {
      for (std::int64_t o = 0; o < weight.out; ++o) {
        decode_row(weight, e, o, &numbers_[static_cast<std::size_t>((e * weight.out + o) * weight.in)]);
      }
    }
  }
  std::vector<double> product(int expert, const std::vector<double>& x) const {
    std::vector<double> y;
    for (std::int64_t o = 0; o < weight_.out; ++o) {
      const float* row = &numbers_[static_cast<std::size_t>((expert * weight_.out + o) * weight_.in)];
      double sum = weight_.bias.empty() ? 0 : to_float(weight_.bias.as<Bf16>()[expert * weight_.out + o]);
      for (std::size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
      y.push_back(sum);
    }
    return y;
  }

 private:
  Weight weight_;
  std::vector<float> numbers_;
};

std::vector<double> activation(const std::vector<double>& u, double limit) {
  std::vector<double> a;
  for (std::size_t j = 0; j < u.size(); j += 2) {
    const double gate = std::min(u[j], limit), up = std::clamp(u[j + 1], -limit, limit);
    const double value = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
    a.push_back(static_cast<double>(to_float(to_f8e4m3(static_cast<float>(value * 8)))) / 8);
  }
  return a;
}

struct Problem {
  explicit Problem(const Case& c)
      : gate_up(testing::random_weight(c.format, {.experts = c.held, .out = 2 * c.intermediate, .in = c.hidden}, 2)),
        down(testing::random_weight(
            c.format, {.experts = c.held, .out = c.hidden, .in = c.intermediate, .bias = c.down_bias}, 3)),
        x(DType::kBf16, {c.rows, c.hidden}),
        chosen(DType::kI32, {c.rows, kTop}),
        weights(DType::kF32, {c.rows, kTop}) {
    // Sums of about 3, most of them inside the clamps; groups of 256 differ in size, so that each scale counts.
    const float size = (c.format == WeightFormat::kFp8 ? 0.1f : 5.f) / std::sqrt(static_cast<float>(c.hidden));
    for (int r = 0; r < c.rows; ++r) {
      for (int i = 0; i < c.hidden; ++i) {
        const auto at = static_cast<std::uint64_t>(r) * unsigned_of(c.hidden) + unsigned_of(i);
        const auto smaller = random_bits(7, unsigned_of(r * 64 + i / 256)) % 4;
        x->row<Bf16>(r)[i] = to_bf16(std::ldexp(testing::random_value(1, at, size), -static_cast<int>(smaller)));
      }
      const std::uint64_t bits = random_bits(9, unsigned_of(r));
      const bool first = c.choice == Choice::kAllTakeTheSame || (c.choice == Choice::kMostTakeOne && bits % 16 != 0);
      const int start = first ? 0 : static_cast<int>(bits / 16 % unsigned_of(c.experts));
      const int stride = c.choice == Choice::kMostTakeOne && c.experts > 8 ? 1 + static_cast<int>(bits / 4096 % 2) : 1;
      for (int i = 0; i < kTop; ++i) {
        chosen->row<std::int32_t>(r)[i] = (start + i * stride) % c.experts;
        weights->row<float>(r)[i] = 0.4f - 0.1f * static_cast<float>(i);
      }
    }
  }
  OwnedWeight gate_up, down;
  OwnedTensor x, chosen, weights;
};

struct OnGpu {
  OnGpu(const Case& c, const Problem& problem)
      : held(gpu, *problem.gate_up, *problem.down, c.first),
        routing{.experts = gpu.upload(*problem.chosen), .weights = gpu.upload(*problem.weights)},
        x(gpu.upload(*problem.x)),
        result(DType::kBf16, {c.rows, c.hidden}) {
    work.shape = {.rows_max = c.rows + 5,
                  .experts_per_token = kTop,
                  .experts_held = c.held,
                  .hidden = c.hidden,
                  .intermediate = c.intermediate};
    const OwnedTensor memory(DType::kU8, {static_cast<std::int64_t>(cuda::expert_work_bytes(work.shape))});
    work.memory = gpu.like(*memory).raw();  // poisoned
  }
  template <class Run>
  const Tensor& run(const Run& run_call, bool bf16_activations = false) {
    const Tensor y = gpu.like(*result);
    run_call(gpu.stream, cuda::ExpertCall{.x = x,
                                          .routing = routing,
                                          .weights = held.weights,
                                          .swiglu_limit = 7,
                                          .work = work,
                                          .y = y,
                                          .bf16_activations = bf16_activations});
    gpu.download(y, *result);
    return *result;
  }
  Gpu gpu;
  testing::GpuExperts held;
  Routing routing;
  cuda::ExpertWork work;
  Tensor x;
  OwnedTensor result;
};

auto rounded(cuda::ExpertTiles tiles) {
  return [tiles](const Stream& stream, const cuda::ExpertCall& call) { cuda::experts_rounded(stream, call, tiles); };
}

// [rows, hidden] f32
OwnedTensor rounded_computation(const Case& c, const Problem& problem) {
  const Decoded gate_up(*problem.gate_up), down(*problem.down);
  OwnedTensor want(DType::kF32, {c.rows, c.hidden}, 0);
  Stream::cpu(8).parallel_for(static_cast<std::size_t>(c.rows), 1, [&](std::size_t begin, std::size_t end) {
    for (auto r = static_cast<int>(begin); r < static_cast<int>(end); ++r) {
      const std::vector<double> input = quantized_row(*problem.x, r);
      for (int i = 0; i < kTop; ++i) {
        const int expert = problem.chosen->row<std::int32_t>(r)[i] - c.first;
        if (expert < 0 || expert >= c.held) continue;
        const std::vector<double> out = down.product(expert, activation(gate_up.product(expert, input), 7));
        for (std::size_t d = 0; d < out.size(); ++d) {
          want->row<float>(r)[d] +=
              to_float(to_bf16(static_cast<float>(out[d] * static_cast<double>(problem.weights->row<float>(r)[i]))));
        }
      }
    }
  });
  return want;
}

void expect_near(const Tensor& want, const Tensor& actual, double all_rows, double one_row) {
  double error = 0, norm = 0;
  for (int r = 0; r < want.size(0); ++r) {
    double row_error = 0, row_norm = 0;
    for (int d = 0; d < want.size(1); ++d) {
      const double got = to_float(actual.row<Bf16>(r)[d]), w = static_cast<double>(want.row<float>(r)[d]);
      ASSERT_TRUE(std::isfinite(got)) << "row " << r << ", element " << d;
      row_error += (got - w) * (got - w);
      row_norm += w * w;
    }
    ASSERT_LE(std::sqrt(row_error), one_row * std::sqrt(row_norm)) << "row " << r << " of norm " << std::sqrt(row_norm);
    error += row_error;
    norm += row_norm;
  }
  EXPECT_LE(std::sqrt(error), all_rows * std::sqrt(norm)) << std::sqrt(error / norm);
}

class CudaExperts : public ::testing::TestWithParam<Case> {};

TEST_P(CudaExperts, EqualsTheRoundedComputation) {
  const Case c = GetParam();
  const Problem problem(c);
  OnGpu on_gpu(c, problem);
  EXPECT_EQ(on_gpu.held.inexact_tiles(on_gpu.gpu), 0);
  const OwnedTensor want = rounded_computation(c, problem);
  for (const cuda::ExpertTiles tiles : kAllTiles) {
    SCOPED_TRACE(tiles == cuda::ExpertTiles::kNarrow ? "narrow tiles" : "wide tiles");
    expect_near(*want, on_gpu.run(rounded(tiles)), 0.006, 0.08);
  }
}

Case same(const char* name, int rows, WeightFormat format = WeightFormat::kMxfp4) {
  return {name, rows, 256, 320, 4, 4, 0, Choice::kAllTakeTheSame, format};
}

constexpr WeightFormat kFp8 = WeightFormat::kFp8;

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaExperts,
    ::testing::Values(same("rows_1", 1), same("rows_9", 9), same("rows_17", 17), same("rows_25", 25),
                      same("rows_40", 40), same("rows_63", 63), same("rows_64", 64), same("rows_65", 65),
                      same("rows_90", 90), same("rows_100", 100), same("rows_127", 127), same("rows_128", 128),
                      same("rows_129", 129), same("rows_150", 150), same("rows_170", 170), same("rows_200", 200),
                      same("rows_256", 256), same("rows_270", 270), same("rows_288", 288), same("rows_300", 300),
                      same("rows_513", 513), same("fp8_rows_1", 1, kFp8), same("fp8_rows_65", 65, kFp8),
                      same("fp8_rows_270", 270, kFp8), same("fp8_rows_300", 300, kFp8),
                      Case{"spread", 513, 256, 320, 32, 32, 0}, Case{"many_entries", 2100, 64, 96, 64, 64, 0},
                      Case{"most_take_one", 300, 256, 320, 64, 64, 0, Choice::kMostTakeOne},
                      Case{"no_down_bias", 70, 256, 320, 8, 8, 0, Choice::kSpread, WeightFormat::kMxfp4, false},
                      Case{"whole_steps", 70, 128, 128, 8, 8, 0}, Case{"odd_widths", 70, 192, 352, 8, 8, 0},
                      Case{"odder_widths", 70, 96, 160, 8, 8, 0}, Case{"some_held", 300, 192, 320, 16, 3, 2},
                      Case{"many_experts", 40, 64, 96, 256, 256, 0}, Case{"shards_736", 20, 512, 736, 4, 4, 0},
                      Case{"shards_672", 20, 512, 672, 4, 4, 0}, Case{"shards_192", 20, 2880, 192, 4, 4, 0},
                      Case{"published_width", 9, 2880, 2880, 4, 4, 0},
                      Case{"fp8_published_width", 9, 2880, 2880, 4, 4, 0, Choice::kSpread, kFp8},
                      Case{"fp8_odd_widths", 70, 192, 352, 8, 8, 0, Choice::kSpread, kFp8}),
    [](const auto& info) { return info.param.name; });

TEST(CudaExpertsRepeat, SameBitsInEveryLaunch) {
  const Case c{"", 300, 256, 320, 8, 8, 0};
  const Problem problem(c);
  OnGpu on_gpu(c, problem);
  for (const cuda::ExpertTiles tiles : kAllTiles) {
    OwnedTensor once(DType::kBf16, {c.rows, c.hidden});
    std::memcpy(once->raw(), on_gpu.run(rounded(tiles)).raw(), once->bytes());
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(std::memcmp(on_gpu.run(rounded(tiles)).raw(), once->raw(), once->bytes()), 0) << "launch " << i;
    }
  }
}

TEST(CudaExpertsWork, NoRowIsHeldHere) {
  const Case c{"", 70, 256, 320, 16, 4, 8, Choice::kAllTakeTheSame};
  const Problem problem(c);
  OnGpu on_gpu(c, problem);
  for (const cuda::ExpertTiles tiles : kAllTiles) {
    const Tensor& y = on_gpu.run(rounded(tiles));
    for (std::int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(to_float(y.as<Bf16>()[i]), 0.f) << i;
  }
}

// The reference path of experts(): bf16 activations in any number of rows, here three chunks. Bounds: see
// experts_decode_gpu_test.cc.
TEST(CudaExpertsBf16, EqualsTheReferenceInManyRows) {
  const Case c{"", 150, 256, 320, 8, 8, 0};
  const Problem problem(c);
  OnGpu on_gpu(c, problem);
  OwnedTensor want(DType::kF32, {c.rows, c.hidden});
  ref::experts(Stream::cpu(8), *problem.x, {.experts = *problem.chosen, .weights = *problem.weights},
               {.gate_up = *problem.gate_up, .down = *problem.down}, 7, *want);
  const auto run = [](const Stream& stream, const cuda::ExpertCall& call) { cuda::experts(stream, call); };
  expect_near(*want, on_gpu.run(run, true), 3.0 / 512, 3.0 / 512);
}

// Exponents of a tile that span more than e4m3 holds are reported.
TEST(CudaExpertsPrepare, CountsTilesThatSpanTooMuch) {
  const OwnedWeight weight = testing::random_weight(WeightFormat::kMxfp4, {.experts = 2, .out = 320, .in = 256}, 5);
  weight.scales->as<std::uint8_t>()[0] = 127 + 1 - 15;             // expert 0, row 0, group 0: 15 under the largest
  weight.scales->as<std::uint8_t>()[320 * 8 + 200 * 8 + 7] = 200;  // expert 1, row 200, group 7
  Gpu gpu;
  const testing::GpuExperts held(gpu, *weight, *weight, 0);
  EXPECT_EQ(held.inexact_tiles(gpu), 2 * 2);
}

}  // namespace
}  // namespace rose::ops
