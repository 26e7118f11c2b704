// Loading from files into a GPU's memory gives the bytes that loading into host memory gives.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/result.h"
#include "weights/stored.h"
#include "weights/testing/checkpoint.h"

namespace rose {
namespace {

const synthetic::Shape kShape{.layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};

std::string checkpoint(const std::string& name, const synthetic::TensorMap& tensors) {
  const std::string folder = ::testing::TempDir() + "rose_staging_gpu_test_" + name;
  std::filesystem::remove_all(folder);
  return synthetic::write_checkpoint(folder, kShape, tensors);
}

void expect_equal(const Stream& stream, const Tensor& host, const Tensor& device, const std::string& what) {
  ASSERT_EQ(host.empty(), device.empty()) << what;
  if (host.empty()) return;
  ASSERT_EQ(host.bytes(), device.bytes()) << what;
  std::vector<std::byte> bytes(host.bytes());
  copy_async(stream, bytes.data(), device.raw(), bytes.size());
  stream.synchronize();
  EXPECT_EQ(std::memcmp(bytes.data(), host.raw(), bytes.size()), 0) << what;
}

TEST(CudaLoad, EqualsTheHostsInEveryFormatThroughSmallAndLargeBuffers) {
  const std::string folder = checkpoint("equal", synthetic::published_tensors(kShape, 41));
  const Stream gpu = Stream::cuda(0), cpu = Stream::cpu(1);
  const auto on_host = open_stored(folder, {.threads = 1});
  for (const std::size_t buffer_bytes : {1000u, 4u << 20}) {
    const auto source = open_stored(folder, {.threads = 4, .staging_bytes = buffer_bytes});
    for (const WeightFormat format : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
      for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.tp = 2, .ep = 2}, ParallelPlan{.tp = 2}}) {
        for (const WeightSpec& spec : synthetic::specs(kShape)) {
          const int rank = plan.ranks() - 1;
          const std::size_t bytes = slice_bytes(spec, slice_of(spec, plan, rank), format);
          Arena host(Device{}, bytes, "host"), device(gpu.device(), bytes, "device");
          const Weight expected = on_host->load(spec, plan, rank, format, host, cpu);
          const Weight actual = source->load(spec, plan, rank, format, device, gpu);
          const std::string what = fmt::format("{} as {}, {}", spec.name, weight_format_name(format), plan.describe());
          expect_equal(gpu, expected.payload, actual.payload, what);
          expect_equal(gpu, expected.scales, actual.scales, what + ", scales");
          expect_equal(gpu, expected.bias, actual.bias, what + ", bias");
        }
      }
    }
  }
}

TEST(CudaLoad, AScaleOf255IsRefused) {
  auto tensors = synthetic::published_tensors(kShape, 42);
  tensors.at("model.layers.0.mlp.experts.gate_up_proj_scales").bytes[(3 * 640 + 17) * 6 + 4] = 255;
  const auto source = open_stored(checkpoint("nan", tensors), {.threads = 2});
  const Stream gpu = Stream::cuda(0);
  for (const WeightSpec& spec : synthetic::specs(kShape)) {
    Arena arena(gpu.device(), slice_bytes(spec, slice_of(spec, {}, 0), WeightFormat::kMxfp4), "device");
    if (spec.name == "layers.0.mlp.gate_up") {
      EXPECT_THROW(source->load(spec, {}, 0, WeightFormat::kMxfp4, arena, gpu), StartError);
    } else {
      EXPECT_NO_THROW(source->load(spec, {}, 0, WeightFormat::kMxfp4, arena, gpu));
    }
  }
}

}  // namespace
}  // namespace rose
