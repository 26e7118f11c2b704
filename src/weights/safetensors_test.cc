// The container's rules, one named case each, and mutations of a good file.
#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "base/result.h"
#include "weights/testing/checkpoint.h"

namespace rose {
namespace {

std::vector<SafetensorsTensor> parse(const std::string& file, const SafetensorsLimits& limits = {}) {
  const ReadBytes read = [&](std::uint64_t offset, std::size_t bytes, void* to) {
    CHECK(offset <= file.size() && bytes <= file.size() - offset, "read of {} at {}", bytes, offset);
    std::memcpy(to, file.data() + offset, bytes);
  };
  return parse_safetensors("f.safetensors", file.size(), read, limits);
}

std::string with_header(std::string header, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\x01');
}

std::string error_of(const std::string& file, const SafetensorsLimits& limits = {}) {
  try {
    parse(file, limits);
    return "";
  } catch (const StartError& error) {
    return error.what();
  }
}

TEST(Safetensors, AGoodFileGivesItsTableInFileOrder) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                             R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                             R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
                             R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[7,11]}}   )";
  const auto tensors = parse(with_header(header, 11));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].describe(), "BF16 [2, 1]");
  EXPECT_EQ(tensors[0].offset, 8 + header.size());
  EXPECT_EQ(tensors[1].name, "none");
  EXPECT_EQ(tensors[1].bytes, 0u);
  EXPECT_EQ(tensors[2].name, "b");
  EXPECT_EQ(tensors[2].offset, 8 + header.size() + 4);
  EXPECT_EQ(tensors[2].bytes, 3u);
  EXPECT_EQ(tensors[3].shape.size(), 0u);
}

TEST(Safetensors, AnEmptyTableNeedsAnEmptyBuffer) {
  EXPECT_TRUE(parse(with_header("{}", 0)).empty());
  EXPECT_NE(error_of(with_header("{}", 1)), "");
}

struct Bad {
  const char* name;
  const char* header;
  std::size_t data_bytes;
  const char* says;
};
class BadHeader : public ::testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedAndNamed) {
  const Bad& bad = GetParam();
  const std::string error = error_of(with_header(bad.header, bad.data_bytes));
  EXPECT_TRUE(error.starts_with("f.safetensors: ")) << error;
  EXPECT_NE(error.find(bad.says), std::string::npos) << error;
}

constexpr Bad kBad[] = {
    {"hole",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5,
     "\"b\": begins at data byte 3, leaving a hole after 2"},
    {"hole_at_start", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "leaving a hole after 0"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})", 5,
     "inside the tensor before it"},
    {"same_place_twice",
     R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3,
     "inside the tensor before it"},
    {"trailing", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "trailing bytes"},
    {"beyond_the_file", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3,
     "do not lie in the 3 data bytes"},
    {"backwards", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2, "do not lie"},
    {"size_is_not_the_shape", R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,2]}})", 2, "needs 4 bytes"},
    {"half_a_byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "F4 [3] needs 2 bytes"},
    {"shape_beyond_64_bits", R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}})", 0,
     "beyond 64 bits"},
    {"bits_beyond_64_bits", R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "2^64"},
    {"negative_size", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, "not a whole number"},
    {"fractional_size", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "not a whole number"},
    {"fractional_offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e0]}})", 1, "whole numbers"},
    {"huge_offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551617]}})", 1, "whole numbers"},
    {"three_offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, "not a pair"},
    {"unknown_dtype", R"({"a":{"dtype":"u8","shape":[1],"data_offsets":[0,1]}})", 1, "unknown dtype \"u8\""},
    {"dtype_no_string", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype is not a string"},
    {"no_shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "needs dtype, shape and data_offsets"},
    {"unknown_field", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1, "unknown field"},
    {"entry_no_object", R"({"a":[1]})", 0, "not an object"},
    {"duplicate_name",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "duplicate"},
    {"duplicate_field", R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, "duplicate"},
    {"metadata_no_object", R"({"__metadata__":"pt"})", 0, "__metadata__"},
    {"metadata_number", R"({"__metadata__":{"n":1}})", 0, "not a string"},
    {"array", R"([{}])", 0, "does not begin"},
    {"leading_space", R"( {})", 0, "does not begin"},
    {"newline_padding", "{}\n", 0, "no object"},
    {"two_objects", "{}{}", 0, ""},
    {"nested", R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}})", 0, ""},
    {"not_utf8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ""},
};
INSTANTIATE_TEST_SUITE_P(Cases, BadHeader, ::testing::ValuesIn(kBad),
                         [](const ::testing::TestParamInfo<Bad>& param) { return param.param.name; });

TEST(Safetensors, WhatPeopleHaveInsteadIsNamed) {
  EXPECT_NE(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(error_of("<!DOCTYPE html><html></html>").find("HTML"), std::string::npos);
  EXPECT_NE(error_of("PK\x03\x04zip of a pickle").find("pickle"), std::string::npos);
  EXPECT_NE(error_of("").find("0 bytes"), std::string::npos);
  EXPECT_NE(error_of("1234567").find("7 bytes"), std::string::npos);
}

TEST(Safetensors, TheHeaderLengthIsBoundedByFileAndLimit) {
  std::string file = with_header("{}", 0);
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
    EXPECT_NE(error_of(file), "") << length;
  }
  const std::string padded = with_header("{}" + std::string(100, ' '), 0);
  EXPECT_EQ(error_of(padded), "");
  EXPECT_NE(error_of(padded, {.header_bytes_max = 101}), "");
  EXPECT_EQ(error_of(padded, {.header_bytes_max = 102}), "");
}

TEST(Safetensors, TheNumberOfTensorsIsBounded) {
  const std::string two = with_header(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2);
  EXPECT_EQ(error_of(two, {.tensors_max = 2}), "");
  EXPECT_NE(error_of(two, {.tensors_max = 1}).find("at most 1"), std::string::npos);
}

TEST(Safetensors, ATruncatedFileIsRefusedAtEveryLength) {
  const std::string file = synthetic::safetensors(synthetic::published_tensors(
      {.layers = 1, .hidden = 32, .intermediate = 32, .experts = 1, .heads = 1, .kv_heads = 1, .vocabulary = 4}, 1));
  EXPECT_EQ(error_of(file), "");
  for (std::size_t length = 0; length < file.size(); length += 1 + length / 50) {
    EXPECT_NE(error_of(file.substr(0, length)), "") << length;
  }
}

// A changed byte of the header gives a StartError or a table that still tiles the file: never anything else.
TEST(Safetensors, MutatedHeadersAreRefusedOrTile) {
  const std::string good = synthetic::safetensors(synthetic::published_tensors(
      {.layers = 1, .hidden = 32, .intermediate = 32, .experts = 1, .heads = 1, .kv_heads = 1, .vocabulary = 4}, 1));
  const std::size_t header_end = good.find("}}") + 2;
  int refused = 0, accepted = 0;
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    std::string file = good;
    const int edits = 1 + static_cast<int>(random_bits(9, trial) % 3);
    for (int edit = 0; edit < edits; ++edit) {
      const std::uint64_t draw = random_bits(10, trial * 4 + static_cast<std::uint64_t>(edit));
      static constexpr char kLetters[] = "0123456789-.,:[]{}\"eE \\uBF";
      file[draw % header_end] =
          draw >> 63 ? static_cast<char>(draw >> 32) : kLetters[(draw >> 32) % (sizeof(kLetters) - 1)];
    }
    try {
      std::uint64_t next = 0, sum = 0;
      for (const SafetensorsTensor& tensor : parse(file)) {
        if (next == 0) next = tensor.offset;
        ASSERT_EQ(tensor.offset, next);
        next += tensor.bytes;
        sum += tensor.bytes;
      }
      ASSERT_EQ(next, file.size());
      ASSERT_LE(sum, file.size());
      ++accepted;
    } catch (const StartError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 10);  // a letter of a name, for instance
}

}  // namespace
}  // namespace rose
