// The rose file: what is written is what is read, damage is found, and a file is whole or not there.
#include "weights/rose_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/random.h"
#include "base/result.h"
#include "weights/partial_file.h"
#include "weights/rose_writer.h"
#include "weights/testing/checkpoint.h"
#include "weights/testing/support.h"

namespace rose {
namespace {

using synthetic::TensorMap;

const synthetic::Shape kTinyA{.layers = 1, .hidden = 192, .intermediate = 320, .experts = 4, .heads = 4, .kv_heads = 2};

class RoseFileTest : public ::testing::Test {
 protected:
  RoseFileTest()
      : folder_(::testing::TempDir() + "rose_file_test_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    tensors_ = synthetic::published_tensors(kTinyA, 21);
    synthetic::write_checkpoint(folder_, kTinyA, tensors_);
    path_ = folder_ + "/model.rose";
  }

  ConvertReport convert(const ConvertOptions& options = {}, const std::string& from = "") {
    const auto source = open_stored(from.empty() ? folder_ : from, {.threads = 2});
    return write_rose_file(*source, synthetic::specs(kTinyA), path_, "rose test", options, nullptr,
                           [] { return false; });
  }

  static void expect_same(WeightSource& source, const TensorMap& tensors, const ParallelPlan& plan, WeightFormat format,
                          std::optional<bool> copied = std::nullopt) {
    for (const WeightSpec& spec : synthetic::specs(kTinyA)) {
      const std::vector<double> whole = synthetic::expected_values(tensors, spec);
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const WeightSlice slice = slice_of(spec, plan, rank);
        Arena arena(Device{}, slice_bytes(spec, slice, format), "test");
        const Weight weight = source.load(spec, plan, rank, format, arena, Stream::cpu(1));
        EXPECT_EQ(arena.bytes_used() > 0, copied.value_or(arena.bytes_used() > 0));
        ASSERT_EQ(synthetic::decoded(weight), synthetic::sliced(whole, spec, slice, spec.in)) << spec.name;
        if (slice.holds_bias) {
          ASSERT_EQ(synthetic::decoded_bias(weight),
                    synthetic::sliced(synthetic::expected_bias(tensors, spec), spec, slice, 1));
        }
      }
    }
  }

  std::string error_of(const std::function<void()>& action) {
    try {
      action();
      return "";
    } catch (const StartError& error) {
      return error.what();
    }
  }
  std::string open_and_load_error() {
    return error_of([&] {
      const auto source = open_weights(path_);
      for (const WeightSpec& spec : synthetic::specs(kTinyA)) {
        Arena arena(Device{}, slice_bytes(spec, slice_of(spec, {}, 0), source->expert_format()), "test");
        source->load(spec, {}, 0, source->expert_format(), arena, Stream::cpu(1));
      }
    });
  }

  std::string folder_;
  std::string path_;
  TensorMap tensors_;
};

TEST_F(RoseFileTest, GivesTheSameWeightsAsItsCheckpoint) {
  for (const WeightFormat stored : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
    const ConvertReport report = convert({.experts = stored, .replace = true});
    EXPECT_EQ(report.file_bytes, std::filesystem::file_size(path_));
    EXPECT_FALSE(std::filesystem::exists(partial_name(path_)));
    EXPECT_EQ(report.formats[static_cast<std::size_t>(stored)].tensors, stored == WeightFormat::kBf16 ? 11 : 2);
    EXPECT_EQ(report.tiles.inexact, 0);
    EXPECT_EQ(report.tiles.tiles, stored == WeightFormat::kFp8 ? 4 * (5 * 2 + 2 * 3) : 0);
    const auto checkpoint = open_weights(folder_);
    const auto file = open_weights(path_);
    EXPECT_EQ(file->config(), checkpoint->config());
    EXPECT_EQ(file->generation_config(), checkpoint->generation_config());
    EXPECT_EQ(file->tokenizer_json(), checkpoint->tokenizer_json());
    EXPECT_EQ(file->chat_format(), "harmony");
    EXPECT_EQ(file->expert_format(), stored);
    for (const ParallelPlan& plan : {ParallelPlan{}, ParallelPlan{.tp = 2}, ParallelPlan{.tp = 2, .ep = 2}}) {
      for (const WeightFormat format : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
        expect_same(*file, tensors_, plan, format);
      }
    }
  }
}

TEST_F(RoseFileTest, IsMappedWithoutACopyWhereNothingIsCut) {
  for (const WeightFormat stored : {WeightFormat::kMxfp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
    convert({.experts = stored, .replace = true});
    const auto file = open_stored(path_, {.map = true, .threads = 2});
    expect_same(*file, tensors_, {}, stored, false);
    expect_same(*file, tensors_, {.tp = 2, .ep = 2},
                stored == WeightFormat::kBf16 ? WeightFormat::kFp8 : WeightFormat::kBf16);
  }
}

TEST_F(RoseFileTest, IsMadeFromAnotherRoseFile) {
  convert({.experts = WeightFormat::kFp8});
  const std::string first = path_;
  path_ = folder_ + "/second.rose";
  convert({.experts = WeightFormat::kMxfp4}, first);
  expect_same(*open_weights(path_), tensors_, {}, WeightFormat::kMxfp4);
}

TEST_F(RoseFileTest, IsTheSameFileEveryTime) {
  convert();
  const std::string first = synthetic::read_file(path_);
  convert({.replace = true, .threads = 4});
  EXPECT_EQ(first == synthetic::read_file(path_), true);
}

TEST_F(RoseFileTest, DoesNotReplaceAFileWithoutBeingTold) {
  synthetic::write_file(path_, "precious");
  EXPECT_NE(error_of([&] { convert(); }).find("exists already"), std::string::npos);
  EXPECT_EQ(synthetic::read_file(path_), "precious");
  convert({.replace = true});
  EXPECT_EQ(open_and_load_error(), "");
}

TEST_F(RoseFileTest, LeavesNothingWhenInterruptedAnywhere) {
  const auto source = open_stored(folder_, {});
  int limit = 0;
  for (;; ++limit) {
    int asked = 0;
    const std::string error = error_of([&] {
      write_rose_file(*source, synthetic::specs(kTinyA), path_, "rose test", {}, nullptr,
                      [&] { return ++asked > limit; });
    });
    if (error.empty()) break;  // never asked that often: converted
    ASSERT_NE(error.find("interrupted"), std::string::npos);
    ASSERT_FALSE(std::filesystem::exists(path_));
    ASSERT_FALSE(std::filesystem::exists(partial_name(path_)));
  }
  EXPECT_GT(limit, 20);  // more than one question a tensor
  EXPECT_EQ(open_and_load_error(), "");
}

TEST_F(RoseFileTest, LeavesNothingWhenTheSourceFails) {
  std::vector<std::uint8_t>& scales = tensors_.at("model.layers.0.mlp.experts.down_proj_scales").bytes;
  scales[7] = 255;
  synthetic::write_checkpoint(folder_, kTinyA, tensors_);
  EXPECT_NE(error_of([&] { convert(); }).find("byte 255"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(partial_name(path_)));
}

TEST_F(RoseFileTest, OverwritesWhatAKilledConversionLeftButNotARunningOne) {
  synthetic::write_file(partial_name(path_), std::string(10, '\0'));
  EXPECT_NE(error_of([&] { open_weights(partial_name(path_)); }).find("unfinished conversion"), std::string::npos);
  {
    const int other = ::open(partial_name(path_).c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
    EXPECT_NE(error_of([&] { convert(); }).find("another conversion is writing it"), std::string::npos);
    EXPECT_EQ(std::filesystem::file_size(partial_name(path_)), 10u) << "untouched";
    ::close(other);
  }
  convert();
  EXPECT_EQ(open_and_load_error(), "");
}

TEST_F(RoseFileTest, ChecksTheDiskBeforeWriting) {
  EXPECT_NE(error_of([&] { PartialFile file(path_, std::uint64_t{1} << 61); }).find("are free"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(partial_name(path_)));
  path_ = folder_ + "/no/such/folder/model.rose";
  EXPECT_NE(error_of([&] { convert(); }).find("cannot be created"), std::string::npos);
}

TEST_F(RoseFileTest, CountsEveryInexactTileBeforeItRefuses) {
  std::vector<std::uint8_t>& scales = tensors_.at("model.layers.0.mlp.experts.down_proj_scales").bytes;
  std::vector<std::uint8_t>& blocks = tensors_.at("model.layers.0.mlp.experts.down_proj_blocks").bytes;
  std::fill(scales.begin(), scales.end(), std::uint8_t{120});
  std::fill(blocks.begin(), blocks.end(), std::uint8_t{0x17});
  scales[(0 * 192 + 3) * 10 + 0] = 120 + 15;    // expert 0 tile (0, 0)
  scales[(3 * 192 + 150) * 10 + 9] = 120 + 30;  // expert 3 tile (1, 2)
  scales[(1 * 192 + 3) * 10 + 4] = 120 + 14;    // exact
  synthetic::write_checkpoint(folder_, kTinyA, tensors_);
  const std::string error = error_of([&] { convert({.experts = WeightFormat::kFp8}); });
  EXPECT_NE(error.find("2 of 64 FP8 tiles would not be exact"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(path_));

  const ConvertReport report = convert({.experts = WeightFormat::kFp8, .allow_inexact = true});
  EXPECT_EQ(report.tiles.inexact, 2);
  EXPECT_EQ(report.tiles.spread[15], 1);
  EXPECT_EQ(report.tiles.spread[30], 1);
  EXPECT_EQ(report.tiles.spread[14], 1);
  // The file says that its tiles were rounded, so cutting them rounds as well instead of being refused.
  const auto file = open_weights(path_);
  const WeightSpec down = synthetic::specs(kTinyA)[8];
  ASSERT_EQ(down.name, "layers.0.mlp.down");
  Arena arena(Device{}, slice_bytes(down, slice_of(down, {.tp = 2}, 0), WeightFormat::kFp8), "test");
  EXPECT_NO_THROW(file->load(down, {.tp = 2}, 0, WeightFormat::kFp8, arena, Stream::cpu(1)));
}

TEST_F(RoseFileTest, EveryChangedByteIsFoundWhenItMatters) {
  convert();
  const std::string good = synthetic::read_file(path_);
  const std::size_t header_end = kRosePrefixBytes + static_cast<unsigned char>(good[16]) +
                                 256 * static_cast<std::size_t>(static_cast<unsigned char>(good[17]));
  int found = 0;
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::string bad = good;
    const std::uint64_t at = random_bits(5, trial) % (trial % 2 == 0 ? header_end : bad.size());
    const auto bit = static_cast<unsigned char>(1u << (random_bits(6, trial) % 8));
    bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ bit);
    synthetic::write_file(path_, bad);
    const std::string error = open_and_load_error();
    // Between extents lie gaps up to 4096: no reader looks at them.
    if (error.empty()) {
      EXPECT_EQ(good[at], '\0') << at;
      EXPECT_GE(at, header_end);
    } else {
      ++found;
      EXPECT_NE(error.find("model.rose"), std::string::npos) << error;
    }
  }
  EXPECT_GT(found, 150);
}

TEST_F(RoseFileTest, DamageInAWeightNamesTheTensor) {
  convert();
  std::string bytes = synthetic::read_file(path_);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  synthetic::write_file(path_, bytes);
  const std::string error = open_and_load_error();
  EXPECT_NE(error.find("model.rose: tensor unembedding: checksum of bytes"), std::string::npos) << error;
}

TEST_F(RoseFileTest, IsRefusedAtEveryOtherLength) {
  convert();
  const std::string good = synthetic::read_file(path_);
  for (std::size_t length = 0; length < good.size(); length += 1 + length / 30) {
    synthetic::write_file(path_, good.substr(0, length));
    EXPECT_NE(open_and_load_error(), "") << length;
  }
  synthetic::write_file(path_, good + "x");
  EXPECT_NE(open_and_load_error(), "");
}

TEST_F(RoseFileTest, AnotherVersionOrLayoutIsRefusedByName) {
  convert();
  const std::string good = synthetic::read_file(path_);
  std::string bytes = good;
  bytes[8] = 2;
  synthetic::write_file(path_, bytes);
  EXPECT_NE(open_and_load_error().find("rose file version 2, this program reads version 1"), std::string::npos);
}

TEST_F(RoseFileTest, ASpecThatTheFileDoesNotHoldIsRefused) {
  convert();
  const auto file = open_weights(path_);
  Arena arena(Device{}, 1u << 20, "test");
  WeightSpec spec = synthetic::specs(kTinyA)[0];
  spec.name = "other";
  EXPECT_NE(error_of([&] {
              file->load(spec, {}, 0, WeightFormat::kBf16, arena, Stream::cpu(1));
            }).find("tensor other is missing"),
            std::string::npos);
  spec = synthetic::specs(kTinyA)[0];
  spec.in = 96;
  EXPECT_NE(error_of([&] {
              file->load(spec, {}, 0, WeightFormat::kBf16, arena, Stream::cpu(1));
            }).find("expected [0, 256, 96]"),
            std::string::npos);
}

}  // namespace
}  // namespace rose
