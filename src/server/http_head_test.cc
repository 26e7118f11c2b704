#include "server/http_head.h"

#include <gtest/gtest.h>

namespace rose::http {
namespace {

std::string head(std::string_view line, std::string_view fields = "Host: a\r\n") {
  return std::string(line) + "\r\n" + std::string(fields) + "\r\n";
}

struct Refused {
  const char* name;
  std::string raw;
  int status;
};

class HttpHeadRefused : public ::testing::TestWithParam<Refused> {};

TEST_P(HttpHeadRefused, WithItsStatus) {
  const auto& [name, raw, status] = GetParam();
  const Result<Head> parsed = parse_head(raw);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().status, status) << parsed.error().message;
}

const std::string kPost = "POST / HTTP/1.1";

INSTANTIATE_TEST_SUITE_P(
    Cases, HttpHeadRefused,
    ::testing::Values(
        Refused{"length_and_encoding", head(kPost, "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400},
        Refused{"two_lengths", head(kPost, "Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n"), 400},
        Refused{"two_equal_lengths", head(kPost, "Host: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n"), 400},
        Refused{"length_list", head(kPost, "Host: a\r\nContent-Length: 5, 5\r\n"), 400},
        Refused{"length_plus", head(kPost, "Host: a\r\nContent-Length: +5\r\n"), 400},
        Refused{"length_minus", head(kPost, "Host: a\r\nContent-Length: -5\r\n"), 400},
        Refused{"length_hex", head(kPost, "Host: a\r\nContent-Length: 0x5\r\n"), 400},
        Refused{"length_underscore", head(kPost, "Host: a\r\nContent-Length: 5_0\r\n"), 400},
        Refused{"length_inner_space", head(kPost, "Host: a\r\nContent-Length: 5 0\r\n"), 400},
        Refused{"length_empty", head(kPost, "Host: a\r\nContent-Length: \r\n"), 400},
        Refused{"length_20_digits", head(kPost, "Host: a\r\nContent-Length: 00000000000000000005\r\n"), 400},
        Refused{"length_above_2_63", head(kPost, "Host: a\r\nContent-Length: 9999999999999999999\r\n"), 400},
        Refused{"encoding_twice", head(kPost, "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        Refused{"encoding_list", head(kPost, "Host: a\r\nTransfer-Encoding: chunked, chunked\r\n"), 501},
        Refused{"encoding_identity", head(kPost, "Host: a\r\nTransfer-Encoding: identity\r\n"), 501},
        Refused{"encoding_xchunked", head(kPost, "Host: a\r\nTransfer-Encoding: xchunked\r\n"), 501},
        Refused{"encoding_parameter", head(kPost, "Host: a\r\nTransfer-Encoding: chunked;p=1\r\n"), 501},
        Refused{"encoding_comma", head(kPost, "Host: a\r\nTransfer-Encoding: chunked,\r\n"), 501},
        Refused{"encoding_vertical_tab", head(kPost, "Host: a\r\nTransfer-Encoding: \vchunked\r\n"), 400},
        Refused{"encoding_in_1_0", head("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n"), 400},
        Refused{"space_before_colon", head(kPost, "Host: a\r\nContent-Length : 3\r\n"), 400},
        Refused{"tab_before_colon", head(kPost, "Host: a\r\nContent-Length\t: 3\r\n"), 400},
        Refused{"folded_field", head(kPost, "Host: a\r\nX: 1\r\n  2\r\n"), 400},
        Refused{"fold_first", head(kPost, " X: 1\r\nHost: a\r\n"), 400},
        Refused{"name_not_a_token", head(kPost, "Host: a\r\nX(): 1\r\n"), 400},
        Refused{"empty_name", head(kPost, "Host: a\r\n: 1\r\n"), 400},
        Refused{"no_colon", head(kPost, "Host: a\r\nX\r\n"), 400},
        Refused{"nul_in_value", head(kPost, std::string("Host: a\r\nX: a\0b\r\n", 16)), 400},
        Refused{"control_in_value", head(kPost, "Host: a\r\nX: a\x01" "b\r\n"), 400},
        Refused{"bare_lf_in_field", head(kPost, "Host: a\r\nX: a\nY: b\r\n"), 400},
        Refused{"bare_cr_in_field", head(kPost, "Host: a\r\nX: a\rY: b\r\n"), 400},
        Refused{"bare_lf_line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
        Refused{"no_host", head(kPost, "X: 1\r\n"), 400},
        Refused{"two_hosts", head(kPost, "Host: a\r\nHost: a\r\n"), 400},
        Refused{"empty_host", head(kPost, "Host:\r\n"), 400},
        Refused{"host_list", head(kPost, "Host: a, b\r\n"), 400},
        Refused{"host_with_user", head(kPost, "Host: u@a\r\n"), 400},
        Refused{"host_with_path", head(kPost, "Host: a/b\r\n"), 400},
        Refused{"absolute_target_elsewhere", head("GET http://b/x HTTP/1.1"), 400},
        Refused{"two_spaces", head("GET  / HTTP/1.1"), 400},
        Refused{"trailing_space", head("GET / HTTP/1.1 "), 400},
        Refused{"tab_in_line", head("GET\t/ HTTP/1.1"), 400},
        Refused{"no_version", head("GET /"), 400},
        Refused{"lower_case_version", head("GET / http/1.1"), 400},
        Refused{"http_1_2", head("GET / HTTP/1.2"), 505},
        Refused{"http_2_preface", "PRI * HTTP/2.0\r\n\r\n", 505},
        Refused{"method_not_a_token", head("G(T / HTTP/1.1"), 400},
        Refused{"method_unknown", head("BREW / HTTP/1.1"), 501},
        Refused{"target_without_slash", head("GET x HTTP/1.1"), 400},
        Refused{"target_star_for_get", head("GET * HTTP/1.1"), 400},
        Refused{"target_high_byte", head("GET /\xff HTTP/1.1"), 400},
        Refused{"target_fragment", head("GET /#a HTTP/1.1"), 400},
        Refused{"target_too_long", head("GET /" + std::string(4096, 'a') + " HTTP/1.1"), 414},
        Refused{"line_too_long", head("GET /" + std::string(9000, 'a') + " HTTP/1.1"), 414},
        Refused{"head_too_large", head(kPost, "Host: a\r\nX: " + std::string(33 << 10, 'a') + "\r\n"), 431},
        Refused{"unknown_expectation", head(kPost, "Host: a\r\nExpect: tea\r\n"), 417},
        Refused{"too_many_fields",
                [] {
                  std::string fields = "Host: a\r\n";
                  for (int i = 0; i < 100; ++i) fields += "X: 1\r\n";
                  return head(kPost, fields);
                }(),
                431}),
    [](const auto& info) { return info.param.name; });

TEST(HttpHead, ReadsWhatMattersToFraming) {
  const Result<Head> parsed = parse_head(head("POST /v1/x?a=b&c HTTP/1.1",
                                              "Host: a:8000\r\nContent-Length:  12 \r\nX-Mixed:\tA b\t\r\n"
                                              "Expect: 100-Continue\r\nConnection: Keep-Alive, close\r\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->method, "POST");
  EXPECT_EQ(parsed->path, "/v1/x");
  EXPECT_EQ(parsed->query, "a=b&c");
  EXPECT_EQ(parsed->content_length, 12u);
  EXPECT_FALSE(parsed->chunked);
  EXPECT_TRUE(parsed->expects_continue);
  EXPECT_FALSE(parsed->keep_alive);
  EXPECT_EQ(parsed->field("x-mixed"), "A b");
  EXPECT_EQ(parsed->field("absent"), "");
}

TEST(HttpHead, KeepsConnectionsByVersion) {
  EXPECT_TRUE(parse_head(head("GET / HTTP/1.1"))->keep_alive);
  EXPECT_FALSE(parse_head(head("GET / HTTP/1.0", ""))->keep_alive);
  EXPECT_TRUE(parse_head(head("GET / HTTP/1.0", "Connection: keep-alive\r\n"))->keep_alive);
}

TEST(HttpHead, TakesAnAbsoluteTargetOfItsOwnHost) {
  const Result<Head> parsed = parse_head(head("GET http://A/x?y HTTP/1.1"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->path, "/x");
  EXPECT_EQ(parsed->query, "y");
}

TEST(HttpHead, EndIsFoundHoweverTheBytesArrive) {
  const std::string whole = head("GET / HTTP/1.1") + "rest";
  const std::size_t expected = whole.size() - 4;
  for (std::size_t split = 0; split <= whole.size(); ++split) {
    const auto early = head_end(std::string_view(whole).substr(0, split));
    EXPECT_EQ(early.has_value(), split >= expected) << split;
    EXPECT_EQ(head_end(whole, split < expected ? split : 0), expected) << split;
  }
}

TEST(HttpHead, PercentEscapesAreExact) {
  EXPECT_EQ(percent_decoded("a%2Fb%20c"), "a/b c");
  for (const char* bad : {"%", "%1", "%g1", "%1g", "%00", "%+1", "% 1"}) EXPECT_FALSE(percent_decoded(bad)) << bad;
}

}  // namespace
}  // namespace rose::http
