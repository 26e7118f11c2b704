#include "tokenizer/o200k/split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/test_files.h"

namespace rose::o200k {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  Splitter splitter(text);
  for (std::string_view piece; splitter.next(piece);) pieces.emplace_back(piece);
  return pieces;
}

struct Case {
  const char* name;
  std::string text;
  Pieces pieces;
};

class Split : public testing::TestWithParam<Case> {};

TEST_P(Split, MatchesThePattern) { EXPECT_EQ(split(GetParam().text), GetParam().pieces); }

INSTANTIATE_TEST_SUITE_P(
    Cases, Split,
    testing::Values(
        Case{"empty", "", {}}, Case{"words", "hello world", {"hello", " world"}},
        Case{"camel", "camelCaseHTTPServer", {"camel", "Case", "HTTPServer"}}, Case{"contraction", "don't", {"don't"}},
        Case{"contraction_upper", "DON'T", {"DON'T"}},
        Case{"contraction_later", "y'all've", {"y", "'all've"}},  // 'a is no contraction: ' is the next word's prefix
        Case{"contraction_prefix_only", "x'sy", {"x's", "y"}},
        Case{"contraction_long_s", "it'\u017Fx", {"it'\u017F", "x"}},
        Case{"not_a_contraction", "it\u2019s", {"it", "\u2019s"}}, Case{"cut_contraction", "we'r", {"we", "'r"}},
        Case{"ends_at_last_caseless", "X\u4E2DY\u4E2DZZ", {"X\u4E2DY\u4E2D", "ZZ"}},
        Case{"upper_then_lower", "\u4E2D\u6587abcABC", {"\u4E2D\u6587abc", "ABC"}},
        Case{"mark_is_a_letter", "\u0301ABC", {"\u0301", "ABC"}},  // alternative 1 without the prefix, before 2 with it
        Case{"mark_as_prefix", "\u0301abc", {"\u0301abc"}}, Case{"mark_alone", "\u0301", {"\u0301"}},
        Case{"marks_and_symbol", "!\u0301", {"!\u0301"}}, Case{"symbols_and_mark", "!!\u0301a", {"!!\u0301", "a"}},
        Case{"prefix_symbol", "(foo)", {"(foo", ")"}}, Case{"prefix_tab", "\tfoo", {"\tfoo"}},
        Case{"newline_is_no_prefix", "\nfoo", {"\n", "foo"}}, Case{"numbers", "12345678", {"123", "456", "78"}},
        Case{"space_number", "a 1", {"a", " ", "1"}},
        Case{"other_numbers", "\u00B2\u00B3\u00BD\u2177", {"\u00B2\u00B3\u00BD", "\u2177"}},
        Case{"symbols_take_newlines", "!!\r\n\r\n/z", {"!!\r\n\r\n/", "z"}},
        Case{"slashes", "foo//bar/\n", {"foo", "//", "bar", "/\n"}}, Case{"space_symbols", "a  !!", {"a", " ", " !!"}},
        Case{"tab_symbols", "\t!!", {"\t", "!!"}}, Case{"last_space_to_word", "   a", {"  ", " a"}},
        Case{"spaces_at_end", "a   ", {"a", "   "}}, Case{"spaces_before_number", "a   1", {"a", "  ", " ", "1"}},
        Case{"newlines_in_run", "a \n \n b", {"a", " \n \n", " b"}},
        Case{"newline_then_spaces", "  \n  x", {"  \n", " ", " x"}},
        Case{"line_separator_is_space", "x\u2028y", {"x", "\u2028y"}},
        Case{"next_line_is_space", "a\u0085\u0085b", {"a", "\u0085", "\u0085b"}},
        Case{"feff_is_no_space", "\uFEFF\uFEFF b", {"\uFEFF\uFEFF", " b"}},
        Case{"unit_separator_is_no_space", "\x1F\x1F b", {"\x1F\x1F", " b"}},
        Case{"bad_bytes_are_symbols", "a\xFF\xC3(b", {"a", "\xFF\xC3(", "b"}},
        Case{"devanagari", "\u0928\u092E\u0938\u094D\u0924\u0947", {"\u0928\u092E\u0938\u094D\u0924\u0947"}}),
    [](const auto& info) { return info.param.name; });

TEST(Splitter, PiecesJoinToTheText) {
  for (const TextVector& vector : read_text_vectors("tokenizer_vectors.jsonl")) {
    std::string joined;
    for (const std::string& piece : split(vector.text)) joined += piece;
    ASSERT_EQ(joined, vector.text);
  }
}

// The worst is a mark before capitals: alternative 1 with it as prefix, alternative 1 with it as a letter, and then the
// capitals again as a piece of their own: three runs, each with one character read beyond its end and the first of all.
TEST(Splitter, ReadsEveryCharacterABoundedNumberOfTimes) {
  constexpr std::size_t kTimes = 20'000;
  for (const std::string_view unit : {"a",        "A",
                                      "Aa",       "aA",
                                      "\u4E2D",   "\u0301",
                                      "\u0301A",  "A\u0301",
                                      "A\u4E2D",  "\u4E2DA",
                                      " ",        "\n",
                                      " \n",      "\n ",
                                      "=",        " =",
                                      "/",        "\r/",
                                      "1",        "1 ",
                                      "'s",       "a's",
                                      "\xFF",     "\u3000",
                                      "\u0301A ", "A\u0301B\u4E2DCC\u0301\u0301DD"}) {
    for (const std::string_view head : {"", "\u0301", "\u4E2D", " "}) {
      const std::string text = std::string(head) + repeated(unit, kTimes);
      Splitter splitter(text);
      for (std::string_view piece; splitter.next(piece);) continue;
      EXPECT_LE(splitter.characters_read(), 4 * text.size() + 8) << head << unit;
    }
  }
}

}  // namespace
}  // namespace rose::o200k
