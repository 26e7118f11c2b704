#include "json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "json/fields.h"

namespace rose::json {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text, const Limits& limits = {}) {
  const auto result = parse(text, limits);
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().status, 400);
  return result.error().message;
}

TEST(JsonParse, KeepsKindsValuesAndKeyOrder) {
  const auto result = parse(R"( {"z":1,"a":[true,false,null,"x"],"m":{"k":-2.5},"u":18446744073709551615} )");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(serialize(*result), R"({"z":1,"a":[true,false,null,"x"],"m":{"k":-2.5E0},"u":18446744073709551615})");
}

TEST(JsonParse, EscapesBecomeUtf8) {
  const auto result = parse(R"(["\"\\\/\b\f\n\r\t","\u0041\u00e9\u4e2d\ud83d\ude00","\u0000x"])");
  ASSERT_TRUE(result.ok()) << result.error().message;
  const Array& array = result->get_array();
  EXPECT_EQ(view(array[0].get_string()), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(view(array[1].get_string()), "A\u00e9\u4e2d\U0001F600");
  EXPECT_EQ(view(array[2].get_string()), std::string_view("\0x", 2));
}

struct Refusal {
  const char* name;
  std::string text;
  std::string message;
};

class JsonRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(JsonRefusal, SaysWhereAndWhy) {
  EXPECT_EQ(error_of(GetParam().text), "invalid JSON at byte " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, JsonRefusal,
    testing::Values(
        Refusal{"empty", "", "0: the text ends too early"}, Refusal{"blank", "  ", "2: the text ends too early"},
        Refusal{"byte_order_mark", "\xEF\xBB\xBF{}", "0: unexpected byte 0xef"},
        Refusal{"zero_byte", std::string("[\0]", 3), "1: unexpected byte 0x00"},
        Refusal{"open_object", R"({"a":1)", "6: the text ends too early"},
        Refusal{"open_array", "[1,", "3: the text ends too early"},
        Refusal{"trailing_comma_array", "[1,]", "3: unexpected ']'"},
        Refusal{"trailing_comma_object", R"({"a":1,})", "7: unexpected '}'"},
        Refusal{"missing_colon", R"({"a" 1})", "5: unexpected '1'"}, Refusal{"bare_key", "{a:1}", "1: unexpected 'a'"},
        Refusal{"single_quotes", "{'a':1}", "1: unexpected '''"}, Refusal{"nan", R"({"t":NaN})", "5: unexpected 'N'"},
        Refusal{"infinity", R"({"t":Infinity})", "5: unexpected 'I'"},
        Refusal{"minus_infinity", R"({"t":-Infinity})", "6: unexpected 'I'"},
        Refusal{"comment", "[1 /* */]", "3: unexpected '/'"}, Refusal{"leading_zero", "[01]", "2: unexpected '1'"},
        Refusal{"plus", "[+1]", "1: unexpected '+'"}, Refusal{"bare_point", "[1.]", "3: unexpected ']'"},
        Refusal{"no_exponent", "[1e]", "3: unexpected ']'"},
        Refusal{"two_values", "{} {}", "3: unexpected '{' after the value"},
        Refusal{"bad_literal", "[trux]", "1: unexpected 't'"},
        Refusal{"huge_number", "[1, 1e400]", "4: number out of range"},
        Refusal{"huge_exponent", "[-1e99999999999]", "1: number out of range"},
        Refusal{"open_string", R"(["abc)", "5: the string opened at byte 1 is not closed"},
        Refusal{"open_escape", "[\"abc\\", "5: unfinished escape"},
        Refusal{"control", "[\"a\nb\"]", "3: unescaped control character in a string"},
        Refusal{"unknown_escape", R"(["ab\x41"])", "4: unknown escape"},
        Refusal{"hex_short", R"(["ab\u12"])", "4: \\u needs four hexadecimal digits"},
        Refusal{"hex_bad", R"(["ab\u12g4 and more text"])", "4: \\u needs four hexadecimal digits"},
        Refusal{"hex_end", R"(["ab\u1)", "4: \\u needs four hexadecimal digits"},
        Refusal{"lone_high", R"(["ab\ud83d and more text"])", "4: lone surrogate escape"},
        Refusal{"lone_high_at_end", R"(["ab\ud83d"])", "4: lone surrogate escape"},
        Refusal{"high_then_escape", R"(["ab\ud83d\n and more text"])", "4: lone surrogate escape"},
        Refusal{"high_then_letter", R"(["ab\ud83d\u0041 and more text"])", "4: lone surrogate escape"},
        Refusal{"high_then_high", R"(["ab\ud83d\ud83d\ude00 and more"])", "4: lone surrogate escape"},
        Refusal{"lone_low", R"(["ab\ude00 and more text"])", "4: lone surrogate escape"},
        Refusal{"lone_low_at_end", R"(["ab\ude00"])", "4: lone surrogate escape"},
        Refusal{"lone_in_key", R"({"ok":"\ud83d\ude00","ab\ud83d":1})", "24: lone surrogate escape"},
        Refusal{"utf8_lead_alone", "[\"ab\xC3\"]", "4: invalid UTF-8"},
        Refusal{"utf8_overlong", "[\"ab\xC0\xAF\"]", "4: invalid UTF-8"},
        Refusal{"utf8_surrogate", "[\"ab\xED\xA0\x80\"]", "4: invalid UTF-8"},
        Refusal{"utf8_too_large", "[\"ab\xF4\x90\x80\x80\"]", "4: invalid UTF-8"},
        Refusal{"utf8_cut", "[\"ab\xF0\x9F", "4: invalid UTF-8"},
        Refusal{"utf8_after_escape", "[\"\\n\xFF and more text\"]", "4: invalid UTF-8"},
        Refusal{"duplicate", R"({"model":1, "x":2, "model":3})", "19: duplicate key \"model\""},
        Refusal{"duplicate_escaped", R"({"model":1,"\u006dodel":3})", "11: duplicate key \"\\u006dodel\""},
        Refusal{"duplicate_inner", R"({"a":{"b":"\"b\":","c":[{"b":1,"b":2}]}})", "31: duplicate key \"b\""},
        Refusal{"duplicate_empty", R"({"":1,"":2})", "6: duplicate key \"\""}),
    [](const auto& info) { return info.param.name; });

TEST(JsonParse, EqualKeysOfDifferentObjectsAreFine) {
  EXPECT_TRUE(parse(R"([{"a":{"a":1},"b":{"a":2}},{"a":3}])").ok());
}

TEST(JsonParse, TheEarliestDuplicateOfManyKeysIsNamed) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += fmt::format("\"k{}\":0,", i);
  const std::size_t at = text.size();
  text += "\"k500\":0,\"k2\":0}";
  EXPECT_EQ(error_of(text), fmt::format("invalid JSON at byte {}: duplicate key \"k500\"", at));
}

// What keeps chosen keys from sharing buckets; see take_object in json.cc.
TEST(JsonParse, LargeObjectsHaveAnOddNumberOfBuckets) {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 300; ++i) {
    text += fmt::format(",\"k{}\":0", i);
    const auto result = parse(text + "}");
    ASSERT_TRUE(result.ok());
    const Object& object = result->get_object();
    ASSERT_EQ(object.size(), static_cast<std::size_t>(i) + 2);
    if (object.size() > 18) {  // below, Boost searches in a line
      ASSERT_EQ(object.capacity() % 2, 1u) << object.size();
    }
    ASSERT_LE(object.capacity(), std::max<std::size_t>(18, object.size() + 1));
  }
}

TEST(JsonParse, LongEscapedKeysAreComparedWhole) {
  const std::string stem(5000, 'x');  // longer than the parser's buffer, so the key arrives in parts
  EXPECT_TRUE(parse("{\"" + stem + "\\n1\":0,\"" + stem + "\\n2\":0}").ok());
  EXPECT_THAT(error_of("{\"" + stem + "\\n1\":0,\"" + stem + "\\u000a1\":0}"), HasSubstr("duplicate key"));
}

TEST(JsonParse, DepthLimitIsExact) {
  const Limits limits{.depth_max = 5};
  EXPECT_TRUE(parse("[[[[[1]]]]]", limits).ok());
  EXPECT_EQ(error_of("[[[[[[1]]]]]]", limits), "invalid JSON at byte 5: nested deeper than 5 levels");
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper than 64 levels"));
}

TEST(JsonParse, SizeLimitIsExact) {
  EXPECT_TRUE(parse("[1, 2]", {.bytes_max = 6}).ok());
  const auto result = parse("[1, 2]", {.bytes_max = 5});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().status, 413);
}

TEST(JsonParse, KeyLimitIsExact) {
  EXPECT_TRUE(parse(R"({"a":{"x":1},"b":{"y":2}})", {.object_keys_max = 2}).ok());
  EXPECT_THAT(error_of(R"({"a":1,"b":2,"c":3})", {.object_keys_max = 2}), HasSubstr("more than 2 keys in one object"));
}

TEST(JsonParse, DoublesAreTheNearestOnes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const int digits = 1 + static_cast<int>(random() % 22);
    std::string number = random() % 2 ? "-" : "";
    number += static_cast<char>('1' + random() % 9);
    number += '.';
    for (int d = 0; d < digits; ++d) number += static_cast<char>('0' + random() % 10);
    number += fmt::format("e{}", static_cast<int>(random() % 600) - 300);
    const auto result = parse(number);
    ASSERT_TRUE(result.ok()) << number;
    ASSERT_EQ(result->get_double(), std::strtod(number.c_str(), nullptr)) << number;
  }
}

TEST(JsonParse, NumbersBeyond64BitsBecomeDoubles) {
  EXPECT_EQ(parse("9223372036854775807")->get_int64(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808")->get_int64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse("9223372036854775808")->get_uint64(), 9223372036854775808u);
  EXPECT_EQ(parse("18446744073709551615")->get_uint64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse("18446744073709551616")->get_double(), 18446744073709551616.0);
  EXPECT_EQ(parse("-9223372036854775809")->get_double(), -9223372036854775808.0);
  EXPECT_EQ(parse("1e-400")->get_double(), 0.0);
}

TEST(JsonParse, SerializedValuesComeBackEqual) {
  const auto value = parse(R"({"a":0.1,"b":[1e22,-0.0,3.141592653589793,123456789012345678],"c":"\u0001é😀"})");
  ASSERT_TRUE(value.ok());
  const auto again = parse(serialize(*value));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*value, *again);
}

TEST(JsonFields, NameTheFieldAtFault) {
  const auto value =
      parse(R"({"s":"x","i":3,"d":3.0,"f":2.5,"b":true,"n":null,"o":{},"a":[],"big":18446744073709551615})");
  ASSERT_TRUE(value.ok());
  const Object& object = value->get_object();
  EXPECT_EQ(*string_field(object, "s"), "x");
  EXPECT_EQ(*integer_field(object, "i"), 3);
  EXPECT_EQ(*integer_field(object, "d"), 3);
  EXPECT_EQ(*number_field(object, "i"), 3.0);
  EXPECT_EQ(*number_field(object, "f"), 2.5);
  EXPECT_EQ(*bool_field(object, "b"), true);
  EXPECT_TRUE((*object_field(object, "o"))->empty());
  EXPECT_TRUE((*array_field(object, "a"))->empty());
  EXPECT_NE(find(object, "n"), nullptr);
  EXPECT_EQ(find_set(object, "n"), nullptr);
  EXPECT_EQ(find(object, "absent"), nullptr);

  EXPECT_EQ(string_field(object, "absent").error().message, "\"absent\" is missing");
  EXPECT_EQ(string_field(object, "i").error().message, "\"i\" must be a string, not a number");
  EXPECT_EQ(string_field(object, "i").error().param, "i");
  EXPECT_EQ(integer_field(object, "f").error().message, "\"f\" must be an integer of 64 bits, not a number");
  EXPECT_FALSE(integer_field(object, "big").ok());
  EXPECT_FALSE(number_field(object, "s").ok());
  EXPECT_FALSE(bool_field(object, "n").ok());
  EXPECT_EQ(object_field(object, "a").error().message, "\"a\" must be an object, not an array");
  EXPECT_EQ(array_field(object, "o").error().message, "\"o\" must be an array, not an object");
}

}  // namespace
}  // namespace rose::json
