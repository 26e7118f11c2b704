// JSON Schema to type text: the crate's own results, then what we do better or differently.
#include "chat/harmony/schema_text.h"

#include <gtest/gtest.h>

#include "chat/harmony/test_support.h"

namespace rose::harmony {
namespace {

TEST(SchemaText, IsTheCratesInCrateStyle) {
  for (const GoldenCase& golden : read_golden("schema")) {
    const json::Value schema = golden.input();
    EXPECT_EQ(function_type(&schema, {.crate = true}), golden.fields.at("text")) << golden.name << "\n"
                                                                                 << golden.fields.at("input");
  }
}

std::string ours(std::string_view schema, bool resolve = false) {
  const json::Value value = json::parse(schema).value();
  return function_type(&value, {.resolve = resolve});
}

TEST(SchemaText, OfNoArgumentsIsEmptyParentheses) {
  EXPECT_EQ(function_type(nullptr, {}), "() => any");
  EXPECT_EQ(ours("null"), "() => any");
  EXPECT_EQ(ours(R"({"type":"object"})"), "() => any");
  EXPECT_EQ(ours(R"({"type":"object","properties":{}})"), "() => any");
  EXPECT_EQ(ours("{}"), "(_: any) => any");
}

TEST(SchemaText, ResolvesOnRequestOnly) {
  const std::string_view days =
      R"({"type":"object","properties":{"days":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}],"default":null}}})";
  EXPECT_EQ(ours(days), "(_: {\ndays?: any, // default: null\n}) => any");
  EXPECT_EQ(ours(days, true), "(_: {\ndays?: string[] | null, // default: null\n}) => any");
  const std::string_view rest =
      R"({"type":"object","properties":{"r":{"$ref":"#/$defs/R"},"one":{"allOf":[{"type":"integer"}]},"m":{"type":"integer","enum":[1,2]},"c":{"const":"k"},"out":{"$ref":"other.json"}},"$defs":{"R":{"type":"string","enum":["a"]}}})";
  EXPECT_EQ(ours(rest), "(_: {\nr?: any,\none?: any,\nm?: number,\nc?: any,\nout?: any,\n}) => any");
  EXPECT_EQ(ours(rest, true), "(_: {\nr?: \"a\",\none?: number,\nm?: 1 | 2,\nc?: \"k\",\nout?: any,\n}) => any");
}

TEST(SchemaText, OfAReferenceToItselfEnds) {
  const std::string text = ours(R"({"type":"object","properties":{"next":{"$ref":"#"}}})", true);
  EXPECT_NE(text.find("next?: any"), std::string::npos);
  EXPECT_LT(text.size(), 20'000u);
  EXPECT_NE(ours(R"({"$ref":"#"})", true).find("any"), std::string::npos);
}

TEST(SchemaText, OfBranchingReferencesIsBounded) {
  std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 60; ++i) {
    schema += fmt::format(R"("{}":{{"anyOf":[{{"$ref":"#/$defs/{}"}},{{"$ref":"#/$defs/{}"}}]}},)", i, i + 1, i + 1);
  }
  const std::string text = ours(schema + R"("60":{"type":"string"}}})", true);
  EXPECT_LT(text.size(), 2 * kSchemaBytesMax);
}

TEST(SchemaText, OfTwoHundredNestedObjectsStopsAtTheDepthLimit) {
  json::Value schema = json::Object{{"type", "string"}};
  for (int i = 0; i < 200; ++i) {
    schema = json::Object{{"type", "object"}, {"properties", json::Object{{"p", std::move(schema)}}}};
  }
  const std::string text = function_type(&schema, {});
  EXPECT_NE(text.find("p?: any"), std::string::npos);
  EXPECT_EQ(text.find("string"), std::string::npos);
}

TEST(CompactJson, WritesNumbersAsTheCrateDoes) {
  for (const auto& [number, text] : std::initializer_list<std::pair<double, const char*>>{{0.0, "0.0"},
                                                                                          {-0.0, "-0.0"},
                                                                                          {1.0, "1.0"},
                                                                                          {-2.5, "-2.5"},
                                                                                          {123456.789, "123456.789"},
                                                                                          {1e15, "1000000000000000.0"},
                                                                                          {1e16, "1e16"},
                                                                                          {1.5e300, "1.5e300"},
                                                                                          {0.1, "0.1"},
                                                                                          {0.00001, "0.00001"},
                                                                                          {1.5e-7, "1.5e-7"}}) {
    EXPECT_EQ(compact_json(number), text);
  }
  EXPECT_EQ(compact_json(json::parse(R"({ "b" : [1, null, "\u0001\"\\\/é"], "a": {} })").value()),
            R"({"b":[1,null,"\u0001\"\\/é"],"a":{}})");
}

}  // namespace
}  // namespace rose::harmony
