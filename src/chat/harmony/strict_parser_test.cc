// The strict parser against the crate: the same messages, the same refusals.
#include "chat/harmony/strict_parser.h"

#include <gtest/gtest.h>

#include "chat/harmony/test_support.h"

namespace rose::harmony {
namespace {

std::optional<Role> role_of(const json::Value& value) {
  return value.is_string() ? role_from_word(value.get_string()) : std::nullopt;
}

json::Object as_json(const HarmonyMessage& message) {
  json::Object object{{"role", role_word(message.role)}};
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) object[key] = value;
  };
  add("name", message.name);
  add("recipient", message.recipient);
  add("channel", message.channel);
  add("content_type", message.content_type);
  object["text"] = std::get<std::string>(message.content);
  return object;
}

TEST(StrictParser, AcceptsAndRefusesWhatTheCrateDoes) {
  for (const GoldenCase& golden : read_golden("strict")) {
    const json::Value input = golden.input();
    StrictParser parser(*o200k(), find_special_tokens(*o200k()), role_of(input.at("role")));
    Result<Ok> fed = Ok{};
    for (const json::Value& id : input.at("ids").as_array()) {
      fed = parser.feed(static_cast<TokenId>(id.as_int64()));
      if (!fed) break;
    }
    if (fed) fed = parser.finish();
    json::Value expected = json::parse(golden.fields.at("expected")).value();
    for (json::Value& message : expected.at("messages").as_array()) {
      // "to=" alone is a recipient to the crate and none to us.
      if (const json::Value* to = message.as_object().if_contains("recipient");
          to != nullptr && to->as_string().empty()) {
        message.as_object().erase("recipient");
      }
    }
    json::Object got;
    if (!fed) got["error"] = fed.error().message;
    json::Array& messages = got["messages"].emplace_array();
    for (const HarmonyMessage& message : parser.messages()) messages.push_back(as_json(message));
    EXPECT_EQ(json::Value(got), expected) << golden.name << "\n"
                                          << golden.fields.at("input") << "\n"
                                          << json::serialize(json::Value(got)) << "\n"
                                          << golden.fields.at("expected");
  }
}

TEST(StrictParser, DeltasConcatenateToTheContent) {
  for (const GoldenCase& golden : read_golden("strict")) {
    const json::Value input = golden.input();
    StrictParser parser(*o200k(), find_special_tokens(*o200k()), role_of(input.at("role")));
    std::string deltas;
    bool ok = true;
    for (const json::Value& id : input.at("ids").as_array()) {
      ok = ok && parser.feed(static_cast<TokenId>(id.as_int64())).ok();
      if (ok) deltas += parser.last_delta();
    }
    if (!ok || !parser.finish().ok()) continue;
    deltas += parser.last_delta();
    std::string whole;
    for (const HarmonyMessage& message : parser.messages()) whole += std::get<std::string>(message.content);
    EXPECT_EQ(deltas, whole) << golden.name;
  }
}

TEST(StrictParser, ReportsAHeaderThatIsStillOpen) {  // PARSE-13
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  StrictParser parser(*tokenizer, find_special_tokens(*tokenizer), std::nullopt);
  for (const TokenId id : tokenizer->encode_with_specials("<|start|>user<|message|>hi<|end|><|start|>assistant")) {
    ASSERT_TRUE(parser.feed(id).ok());
  }
  EXPECT_EQ(parser.messages().size(), 1u);
  EXPECT_TRUE(parser.header_open());
  EXPECT_EQ(parser.finish().error().message, "Unexpected EOS while waiting for message header to complete");
}

TEST(StrictParser, ShowsNoDeltaBeforeACharacterIsWhole) {
  StrictParser parser(*o200k(), find_special_tokens(*o200k()), std::nullopt);
  std::vector<std::string> deltas;
  for (const TokenId id : o200k()->encode_with_specials("<|start|>assistant<|message|>")) {
    ASSERT_TRUE(parser.feed(id).ok());
  }
  for (const TokenId id : {28823, 101, 2524}) {
    ASSERT_TRUE(parser.feed(id).ok());
    deltas.push_back(parser.last_delta());
  }
  EXPECT_EQ(deltas, (std::vector<std::string>{"", "👨", "\u200d"}));
}

}  // namespace
}  // namespace rose::harmony
