// Loading through small buffers gives the bytes that loading in place gives: the way to a GPU, tried on the CPU.
#include "weights/staging.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/result.h"
#include "weights/rose_writer.h"
#include "weights/stored.h"
#include "weights/testing/checkpoint.h"
#include "weights/testing/support.h"
#include "weights/threads.h"

namespace rose {
namespace {

// Rows of 192 and 320 columns: payload, scales and bias rows are all of other lengths than the buffers below.
const synthetic::Shape kShape{.layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};
const ParallelPlan kPlans[] = {{}, {.tp = 2}, {.tp = 2, .ep = 2}, {.dp = 2, .tp = 2, .ep = 1}};
// Less than any row; a few rows and a piece; about the weight.
constexpr std::size_t kBufferBytes[] = {37, 1000, 65536};

std::string fresh_folder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "rose_staging_test_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  if (tensor.empty()) return {};
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.raw());
  return {bytes, bytes + tensor.bytes()};
}

void expect_same(WeightSource& in_place, WeightSource& staged, WeightFormat format, const std::string& what) {
  const Stream stream = Stream::cpu(1);
  for (const WeightSpec& spec : synthetic::specs(kShape)) {
    for (const ParallelPlan& plan : kPlans) {
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const std::size_t bytes = slice_bytes(spec, slice_of(spec, plan, rank), format);
        Arena expected_arena(Device{}, bytes, "in place"), actual_arena(Device{}, bytes, "staged");
        // Nothing that loading leaves out may look right by chance.
        std::memset(actual_arena.take("poison", 0), 0xa5, bytes);
        const Weight expected = in_place.load(spec, plan, rank, format, expected_arena, stream);
        const Weight actual = staged.load(spec, plan, rank, format, actual_arena, stream);
        const std::string place = fmt::format("{}, {} rank {} of {}", what, spec.name, rank, plan.describe());
        ASSERT_EQ(actual_arena.bytes_used(), bytes) << place;
        ASSERT_EQ(actual.format, expected.format) << place;
        ASSERT_EQ(actual.payload.describe(), expected.payload.describe()) << place;
        ASSERT_EQ(bytes_of(actual.payload), bytes_of(expected.payload)) << place;
        ASSERT_EQ(bytes_of(actual.scales), bytes_of(expected.scales)) << place;
        ASSERT_EQ(bytes_of(actual.bias), bytes_of(expected.bias)) << place;
      }
    }
  }
}

void expect_same_with_all_buffers(const std::string& path, const std::vector<WeightFormat>& formats) {
  const auto in_place = open_stored(path, {.threads = 1});
  for (const std::size_t bytes : kBufferBytes) {
    const auto staged = open_stored(path, {.threads = 3, .staging_bytes = bytes, .staged = true});
    for (const WeightFormat format : formats) {
      expect_same(*in_place, *staged, format, fmt::format("{} through {} bytes", weight_format_name(format), bytes));
    }
  }
}

TEST(StagedLoad, OfPublishedExpertsEqualsLoadingInPlace) {
  const auto tensors = synthetic::published_tensors(kShape, 31);
  expect_same_with_all_buffers(synthetic::write_checkpoint(fresh_folder("published"), kShape, tensors),
                               {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16});
}

TEST(StagedLoad, OfATransposedExportEqualsLoadingInPlace) {
  const auto tensors = synthetic::bf16_tensors(synthetic::published_tensors(kShape, 32));
  expect_same_with_all_buffers(synthetic::write_checkpoint(fresh_folder("export"), kShape, tensors),
                               {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16});
}

TEST(StagedLoad, OfARoseFileEqualsLoadingInPlace) {
  const std::string folder =
      synthetic::write_checkpoint(fresh_folder("rose"), kShape, synthetic::published_tensors(kShape, 33, 2));
  for (const WeightFormat stored : {WeightFormat::kMxfp4, WeightFormat::kFp8}) {
    const std::string path = fmt::format("{}/{}.rose", folder, weight_format_name(stored));
    const auto source = open_stored(folder, {.threads = 2});
    write_rose_file(*source, synthetic::specs(kShape), path, "test", {.experts = stored}, nullptr,
                    [] { return false; });
    expect_same_with_all_buffers(path, {stored});
  }
}

TEST(StagedLoad, AScaleOf255IsFoundInTheBufferAndNamed) {
  auto tensors = synthetic::published_tensors(kShape, 34);
  tensors.at("model.layers.0.mlp.experts.gate_up_proj_scales").bytes[(3 * 640 + 17) * 6 + 4] = 255;
  const std::string folder = synthetic::write_checkpoint(fresh_folder("nan"), kShape, tensors);
  for (const std::size_t bytes : kBufferBytes) {
    for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.tp = 2, .ep = 2}, ParallelPlan{.tp = 2}}) {
      const auto staged = open_stored(folder, {.threads = 2, .staging_bytes = bytes, .staged = true});
      std::string error;
      for (const WeightSpec& spec : synthetic::specs(kShape)) {
        for (int rank = 0; rank < plan.ranks(); ++rank) {
          Arena arena(Device{}, slice_bytes(spec, slice_of(spec, plan, rank), WeightFormat::kMxfp4), "test");
          try {
            staged->load(spec, plan, rank, WeightFormat::kMxfp4, arena, Stream::cpu(1));
          } catch (const StartError& failure) {
            error = failure.what();
          }
        }
      }
      EXPECT_NE(error.find("gate_up_proj_scales: the scale of expert 3, row 17, group 4 is byte 255"),
                std::string::npos)
          << error << " through " << bytes << " bytes, " << plan.describe();
    }
  }
}

TEST(Staging, ManyThreadsShareFewBuffersAndAFailureGivesItsBufferBack) {
  constexpr std::size_t kBytes = 64, kPuts = 2000;
  Staging staging(Device{}, kBytes, 2);
  const Stream stream = Stream::cpu(1);
  const Delivery delivery(staging, stream);
  std::vector<std::byte> to(kPuts * kBytes);
  std::atomic<int> failures = 0;
  for_each_index(kPuts, 5, [&](std::size_t i) {
    try {
      delivery.put(to.data() + i * kBytes, kBytes, [&](std::byte* where) {
        if (i % 7 == 0) throw StartError("unreadable");
        std::memset(where, static_cast<int>(i % 251), kBytes);
      });
    } catch (const StartError&) {
      ++failures;
    }
  });
  EXPECT_EQ(failures, (kPuts + 6) / 7);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t put = i / kBytes;
    ASSERT_EQ(std::to_integer<std::size_t>(to[i]), put % 7 == 0 ? 0 : put % 251) << put;
  }
}

TEST(Staging, CopiesOfAnyLengthArriveWhole) {
  Staging staging(Device{}, 64, 1);
  const Stream stream = Stream::cpu(1);
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 128, 1000}) {
    std::vector<std::byte> from(bytes), to(bytes + 1, std::byte{0xee});
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 37);
    Delivery(staging, stream).copy(to.data(), from.data(), bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << bytes;
    EXPECT_EQ(to.back(), std::byte{0xee}) << bytes;
  }
}

}  // namespace
}  // namespace rose
