#include "server/http_body.h"

#include <gtest/gtest.h>

namespace rose::http {
namespace {

struct Decoded {
  std::string body;
  std::size_t used = 0;
  bool done = false;
  int status = 0;  // of the error, 0 without one
};

// Feeds `input` in pieces of `piece` bytes.
Decoded decode(BodyDecoder decoder, std::string_view input, std::size_t piece) {
  Decoded out;
  while (out.used < input.size() && !decoder.done() && !decoder.error()) {
    out.used += decoder.feed(input.substr(out.used, piece), out.body);
  }
  out.done = decoder.done();
  out.status = decoder.error() ? decoder.error()->status : 0;
  return out;
}

TEST(HttpBody, ChunksDecodeAlikeHoweverTheyAreSplit) {
  const std::string input =
      "5;x=\"y\"\r\nhello\r\n1\r\n \r\n00A\r\n0123456789\r\n0\r\nTrailer: dropped\r\n\r\nGET /next";
  for (std::size_t piece = 1; piece <= input.size(); ++piece) {
    const Decoded got = decode(BodyDecoder::chunked({}), input, piece);
    EXPECT_EQ(got.status, 0);
    EXPECT_TRUE(got.done);
    EXPECT_EQ(got.body, "hello 0123456789");
    EXPECT_EQ(input.substr(got.used), "GET /next") << piece;
  }
}

TEST(HttpBody, LengthTakesExactlyItsBytes) {
  for (std::size_t piece = 1; piece <= 8; ++piece) {
    const Decoded got = decode(BodyDecoder::of_length(5, {}), "helloGET", piece);
    EXPECT_TRUE(got.done);
    EXPECT_EQ(got.body, "hello");
    EXPECT_EQ(got.used, 5u);
  }
  EXPECT_TRUE(BodyDecoder::of_length(0, {}).done());
}

TEST(HttpBody, BadChunksAreRefused) {
  for (const std::string_view input : {"\r\nx",
                                       "0x5\r\nhello\r\n",
                                       "5_0\r\n",
                                       "+5\r\n",
                                       "-2\r\n",
                                       " 5\r\n",
                                       "5 \r\n",
                                       "\t5\r\n",
                                       "g\r\n",
                                       "00000000000000005\r\n",
                                       "5;\n\r\n",
                                       "5\nhello\r\n",
                                       "5\rhello",
                                       "5\r\nhelloX",
                                       "5\r\nhello\n",
                                       "5\r\nhello\rX",
                                       "5\r\nhello\r\r\n",
                                       "0\r\n\n",
                                       "0\r\nNo colon\r\n\r\n",
                                       "0\r\nA : b\r\n\r\n",
                                       "0\r\nA: b\nC: d\r\n\r\n",
                                       "5;a\x01\r\n",
                                       "0\r\n: x\r\n\r\n"}) {
    for (const std::size_t piece : {std::size_t{1}, input.size()}) {
      EXPECT_EQ(decode(BodyDecoder::chunked({}), input, piece).status, 400) << ::testing::PrintToString(input);
    }
  }
}

TEST(HttpBody, SizesAreCheckedBeforeAnythingIsTaken) {
  const BodyLimits limits{.bytes_max = 10};
  EXPECT_EQ(BodyDecoder::of_length(11, limits).error()->status, 413);
  EXPECT_FALSE(BodyDecoder::of_length(10, limits).error());
  EXPECT_EQ(decode(BodyDecoder::chunked(limits), "ffffffffffffffff\r\n", 64).status, 413);
  const Decoded sum = decode(BodyDecoder::chunked(limits), "6\r\n123456\r\n5\r\n12345\r\n", 64);
  EXPECT_EQ(sum.status, 413);
  EXPECT_EQ(sum.body, "123456");
  EXPECT_TRUE(decode(BodyDecoder::chunked(limits), "6\r\n123456\r\n4\r\n1234\r\n0\r\n\r\n", 64).done);
}

TEST(HttpBody, TinyChunksAreCutOffAsOverhead) {
  std::string input;
  for (int i = 0; i < 1'000'000; ++i) input += "1\r\nx\r\n";
  const Decoded got = decode(BodyDecoder::chunked({}), input, 4096);
  EXPECT_EQ(got.status, 400);
  // Five bytes of overhead a chunk: cut at 100 KiB of them.
  EXPECT_LE(got.body.size(), (100u << 10) / 5 + 1);
}

TEST(HttpBody, ExtensionsAndTrailersAreBounded) {
  EXPECT_EQ(decode(BodyDecoder::chunked({}), "1;" + std::string(300, 'a') + "\r\n", 4096).status, 400);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "1;" + std::string(200, 'a') + "\r\nx\r\n";
  EXPECT_EQ(decode(BodyDecoder::chunked({}), many, 4096).status, 400);
  std::string trailers = "0\r\n";
  for (int i = 0; i < 1000; ++i) trailers += "A: b\r\n";
  EXPECT_EQ(decode(BodyDecoder::chunked({}), trailers, 4096).status, 400);
  std::string chunks;
  for (int i = 0; i < 70'000; ++i) chunks += "10\r\n0123456789abcdef\r\n";
  EXPECT_EQ(decode(BodyDecoder::chunked({}), chunks, 1 << 20).status, 400) << "more than 65,536 chunks";
}

}  // namespace
}  // namespace rose::http
