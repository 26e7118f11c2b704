#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/test_files.h"

namespace rose {
namespace {

std::string streamed(std::string_view bytes, const std::vector<std::size_t>& cuts) {
  Utf8Stream stream;
  std::string out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    stream.feed(bytes.substr(begin, cut - begin), out);
    begin = cut;
  }
  stream.feed(bytes.substr(begin), out);
  stream.flush(out);
  EXPECT_FALSE(stream.pending());
  return out;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST(Utf8Stream, DecodesAsPythonDoesHoweverTheBytesAreCut) {
  const std::string file = repository_file("tests/golden/utf8_vectors.jsonl");
  std::mt19937_64 random(3);
  int rows = 0;
  for (std::size_t begin = 0; begin < file.size(); ++rows) {
    const std::size_t end = file.find('\n', begin);
    const json::Value row = json::parse(std::string_view(file).substr(begin, end - begin)).value();
    begin = end + 1;
    const std::string bytes = from_hex(*json::string_field(row.get_object(), "bytes"));
    const std::string expected(*json::string_field(row.get_object(), "text"));
    std::vector<std::size_t> every_byte;
    std::vector<std::size_t> some;
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      every_byte.push_back(i);
      if (random() % 3 == 0) some.push_back(i);
    }
    ASSERT_EQ(streamed(bytes, {}), expected);
    ASSERT_EQ(streamed(bytes, every_byte), expected);
    ASSERT_EQ(streamed(bytes, some), expected);
  }
  EXPECT_GE(rows, 1000);
}

TEST(Utf8Stream, EveryCodePointComesThroughByteByByte) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string bytes;
    if (code < 0x80) {
      bytes = {static_cast<char>(code)};
    } else if (code < 0x800) {
      bytes = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    } else if (code < 0x10000) {
      bytes = {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
               static_cast<char>(0x80 | (code & 0x3F))};
    } else {
      bytes = {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3F)),
               static_cast<char>(0x80 | (code >> 6 & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
    }
    const Utf8Step step = utf8_step(bytes);
    ASSERT_TRUE(step.valid) << static_cast<unsigned>(code);
    ASSERT_TRUE(step.code == code) << static_cast<unsigned>(code);
    ASSERT_EQ(static_cast<std::size_t>(step.bytes), bytes.size());
    Utf8Stream stream;
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(out, "");
      stream.feed({&bytes[i], 1}, out);
    }
    ASSERT_EQ(out, bytes);
    ASSERT_FALSE(stream.pending());
  }
}

TEST(Utf8Stream, HoldsBackOnlyAnUnfinishedCharacter) {
  Utf8Stream stream;
  std::string out;
  stream.feed("a\xF0\x9F\x98", out);
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(stream.pending());
  stream.feed("\x80z", out);
  EXPECT_EQ(out, "a\U0001F600z");
  stream.feed("\xE4\xB8", out);
  stream.feed("x", out);  // the two bytes can no longer become a character: one replacement for both
  EXPECT_EQ(out, "a\U0001F600z\uFFFDx");
  stream.feed("\xED\xA0", out);  // never a character: nothing is held
  EXPECT_EQ(out, "a\U0001F600z\uFFFDx\uFFFD\uFFFD");
  EXPECT_FALSE(stream.pending());
}

TEST(Utf8Stream, IsCleanAfterAFlush) {
  Utf8Stream stream;
  std::string out;
  stream.feed("\xF0\x9F", out);
  stream.flush(out);
  stream.flush(out);
  stream.feed("\x98", out);
  EXPECT_EQ(out, "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace rose
