// The kernel against the CPU: the same bits, and not a byte beyond.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/testing/gpu.h"
#include "weights/random_fill/random_fill.h"
#include "weights/random_source.h"
#include "weights/testing/checkpoint.h"

namespace rose {
namespace {

using ops::testing::Gpu;
using ops::testing::OwnedTensor;

struct Case {
  std::int64_t matrices, rows, units, first, matrix_stride, row_stride;
};
// One unit; rows of one; odd sizes; more than a grid of units; indices beyond 32 bits.
constexpr Case kCases[] = {{1, 1, 1, 0, 0, 0},
                           {1, 777, 1, 5, 0, 1},
                           {3, 5, 37, 1000, 12345, 90},
                           {4, 300, 719, 7, 1 << 20, 2880},
                           {2, 3, 33, (std::int64_t{1} << 33) + 11, std::int64_t{1} << 34, std::int64_t{1} << 32}};

TEST(CudaRandomFill, EqualsTheCpuBitForBitInEveryKind) {
  Gpu gpu;
  for (const RandomKind kind : {RandomKind::kBf16, RandomKind::kCodes, RandomKind::kScales}) {
    const std::int64_t unit = kind == RandomKind::kBf16 ? 2 : kind == RandomKind::kCodes ? 16 : 1;
    for (const Case& c : kCases) {
      RandomRegion region{.kind = kind, .matrices = c.matrices, .rows = c.rows, .units = c.units, .first = c.first};
      region.matrix_stride = c.matrix_stride;
      region.row_stride = c.row_stride;
      region.key = 0x123456789abcdefull;
      region.scale = 0.0226274170f / 65536;
      region.center = kind == RandomKind::kBf16 ? 4321 : 0;
      region.exponent = 119;
      const std::int64_t bytes = c.matrices * c.rows * c.units * unit;
      const OwnedTensor expected(DType::kU8, {bytes + 64}), actual(DType::kU8, {bytes + 64}, 0);
      const Tensor device = gpu.like(*expected);
      region.to = expected->raw();
      random_fill(Stream::cpu(1), region);
      region.to = device.raw();
      random_fill(gpu.stream, region);
      gpu.download(device, *actual);
      EXPECT_EQ(std::memcmp(expected->raw(), actual->raw(), static_cast<std::size_t>(bytes) + 64), 0)
          << static_cast<int>(kind) << ": " << c.matrices << " x " << c.rows << " x " << c.units;
    }
  }
}

TEST(CudaRandomSource, EveryWeightOfEveryRankEqualsTheCpus) {
  const synthetic::Shape shape{
      .layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};
  RandomSource source("test", json::Object{}, 3, "{}");
  Gpu gpu;
  const auto expect_equal = [&](const Tensor& host, const Tensor& device, const std::string& name) {
    ASSERT_EQ(host.empty(), device.empty()) << name;
    if (host.empty()) return;
    ASSERT_EQ(host.bytes(), device.bytes()) << name;
    std::vector<std::byte> bytes(host.bytes());
    copy_async(gpu.stream, bytes.data(), device.raw(), bytes.size());
    gpu.stream.synchronize();
    EXPECT_EQ(std::memcmp(bytes.data(), host.raw(), bytes.size()), 0) << name;
  };
  for (const WeightSpec& spec : synthetic::specs(shape)) {
    for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.tp = 2}, ParallelPlan{.tp = 2, .ep = 2}}) {
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const std::size_t bytes = slice_bytes(spec, slice_of(spec, plan, rank), WeightFormat::kMxfp4);
        Arena host(Device{}, bytes, "host"), device(gpu.stream.device(), bytes, "device");
        const Weight expected = source.load(spec, plan, rank, WeightFormat::kMxfp4, host, Stream::cpu(1));
        const Weight actual = source.load(spec, plan, rank, WeightFormat::kMxfp4, device, gpu.stream);
        expect_equal(expected.payload, actual.payload, spec.name);
        expect_equal(expected.scales, actual.scales, spec.name + ".scales");
        expect_equal(expected.bias, actual.bias, spec.name + ".bias");
      }
    }
  }
}

}  // namespace
}  // namespace rose
