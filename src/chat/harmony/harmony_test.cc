// The chat format as the server uses it: refusals with the field at fault, forced and continued answers, stop tokens.
#include "chat/harmony/harmony.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "chat/harmony/test_support.h"

namespace rose::harmony {
namespace {

Result<std::vector<TokenId>> rendered(const Conversation& conversation) {
  return Harmony(std::make_shared<ByteTokenizer>(), {}).render(conversation);
}

void expect_refused(const Conversation& conversation, std::string_view param) {
  const auto result = rendered(conversation);
  ASSERT_FALSE(result.ok()) << param;
  EXPECT_EQ(result.error().status, 400);
  EXPECT_EQ(result.error().param, param);
  EXPECT_FALSE(result.error().message.empty());
}

TEST(Harmony, RefusesWithTheFieldAtFault) {
  expect_refused({}, "messages");
  Conversation conversation = with_tools({"f"});
  conversation.messages.push_back({.role = Role::kTool, .content = "r", .tool_call_id = "nope"});
  expect_refused(conversation, "messages[1].tool_call_id");
  conversation.messages.back().tool_call_id = "";
  expect_refused(conversation, "messages[1].tool_call_id");
  conversation.messages.back().name = "no <|end|> name";
  expect_refused(conversation, "messages[1].name");

  conversation = with_tools({"f"});
  conversation.messages.push_back({.role = Role::kAssistant, .tool_calls = {{"1", "f", "{}"}, {"2", "a b", "{}"}}});
  expect_refused(conversation, "messages[1].tool_calls[1].name");

  // A result before its call.
  conversation.messages.back() = {.role = Role::kTool, .content = "r", .tool_call_id = "1"};
  conversation.messages.push_back({.role = Role::kAssistant, .tool_calls = {{"1", "f", "{}"}}});
  expect_refused(conversation, "messages[1].tool_call_id");
}

TEST(Harmony, RefusesBadToolsAndChoices) {
  expect_refused(with_tools({"f", "f"}), "tools[1].name");
  expect_refused(with_tools({"f", ""}), "tools[1].name");
  expect_refused(with_tools({"sp ace"}), "tools[0].name");
  expect_refused(with_tools({"<|end|>"}), "tools[0].name");
  expect_refused(with_tools({std::string(65, 'a')}), "tools[0].name");
  EXPECT_TRUE(rendered(with_tools({std::string(64, 'a')})).ok());

  Conversation conversation = with_tools({"f"});
  conversation.tool_choice = {ToolChoiceMode::kNamed, {"g"}};
  expect_refused(conversation, "tool_choice");
  conversation.tool_choice = {ToolChoiceMode::kAuto, {"g"}};
  expect_refused(conversation, "tool_choice");
  conversation.tool_choice = {ToolChoiceMode::kNamed, {}};
  expect_refused(conversation, "tool_choice");
  conversation = with_tools({});
  conversation.tool_choice = {ToolChoiceMode::kRequired, {}};
  expect_refused(conversation, "tool_choice");
}

TEST(Harmony, RefusesToContinueWhatIsNoOpenAnswer) {
  Conversation conversation = with_tools({"f"});
  conversation.continue_final_message = true;
  expect_refused(conversation, "continue_final_message");
  conversation.messages.push_back({.role = Role::kAssistant, .content = "I", .tool_calls = {{"1", "f", "{}"}}});
  expect_refused(conversation, "continue_final_message");
  conversation.messages.back() = {.role = Role::kAssistant, .content = "I"};
  EXPECT_TRUE(rendered(conversation).ok());
  conversation.tool_choice = {ToolChoiceMode::kNamed, {"f"}};
  expect_refused(conversation, "tool_choice");
}

// The parser's own view of a generation behind `conversation`.
Transcript answer(const Conversation& conversation, std::string_view text) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  return parse(Harmony(tokenizer, {}), conversation, tokenizer->encode_with_specials(text), *tokenizer);
}

TEST(Harmony, ContinuesAnOpenAnswerAsContent) {
  Conversation conversation = with_tools({"f"});
  conversation.continue_final_message = true;
  conversation.messages.push_back({.role = Role::kAssistant, .content = "Once"});
  EXPECT_EQ(answer(conversation, " upon<|return|>").content, " upon");
  conversation.messages.back() = {.role = Role::kAssistant, .reasoning = "Once"};
  const Transcript got = answer(conversation, " upon<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>");
  EXPECT_EQ(got.reasoning, " upon");
  EXPECT_EQ(got.content, "x");
  EXPECT_EQ(got.reasoning_tokens, 6);
}

TEST(Harmony, BeginsANamedCallWithTheFirstId) {
  Conversation conversation = with_tools({"f", "g"});
  conversation.tool_choice = {ToolChoiceMode::kNamed, {"g"}};
  EXPECT_EQ(answer(conversation, "{\"x\":1}<|call|>").calls, (std::vector<Transcript::Call>{{"g", "{\"x\":1}", true}}));
  EXPECT_EQ(answer(conversation, "").calls, (std::vector<Transcript::Call>{{"g", "", false}}));
  EXPECT_EQ(answer(conversation, "<|call|>").calls, (std::vector<Transcript::Call>{{"g", "{}", true}}));
  EXPECT_FALSE(answer(conversation, "{\"x\"").called_tool);
  EXPECT_EQ(Harmony(o200k(), {}).constraint(conversation), nullptr);

  conversation.tool_choice = {ToolChoiceMode::kRequired, {"g"}};
  EXPECT_EQ(answer(conversation, "{}<|call|>").calls, (std::vector<Transcript::Call>{{"g", "{}", true}}));
}

TEST(Harmony, ReadsOnInTheHeaderOfARequiredCall) {
  Conversation conversation = with_tools({"f", "g"});
  conversation.tool_choice.mode = ToolChoiceMode::kRequired;
  EXPECT_EQ(answer(conversation, ".g <|constrain|>json<|message|>{}<|call|>").calls,
            (std::vector<Transcript::Call>{{"g", "{}", true}}));
  EXPECT_TRUE(answer(conversation, ".g <|constrain|>js").calls.empty());
}

// All headers the constraint lets through.
void collect(const HeaderConstraint& constraint, std::vector<TokenId>& ids, std::set<std::string>& texts) {
  ASSERT_LT(ids.size(), 64u);
  const std::vector<TokenId> allowed = constraint.allowed_next_tokens(ids);
  if (allowed.empty()) texts.insert(o200k()->decode_all(ids));
  for (const TokenId id : allowed) {
    ids.push_back(id);
    collect(constraint, ids, texts);
    ids.pop_back();
  }
}

TEST(Harmony, ConstrainsARequiredCallToTheAllowedNames) {
  Conversation conversation = with_tools({"get", "get_weather", "web-look", "a.b", "hidden"});
  conversation.tool_choice = {ToolChoiceMode::kRequired, {"get", "get_weather", "web-look", "a.b"}};
  const Harmony harmony(o200k(), {});
  const auto constraint = harmony.constraint(conversation);
  ASSERT_NE(constraint, nullptr);
  std::vector<TokenId> ids;
  std::set<std::string> texts;
  collect(*constraint, ids, texts);
  const std::string tail = " <|constrain|>json<|message|>";
  EXPECT_EQ(texts, (std::set<std::string>{".get" + tail, ".get_weather" + tail, ".web-look" + tail, ".a.b" + tail}));
  // Behind the header all is free, and a stray id that the mask should have kept out stops nothing.
  ids = o200k()->encode_with_specials(".get <|constrain|>json<|message|>{\"a\"");
  EXPECT_TRUE(constraint->allowed_next_tokens(ids).empty());
}

TEST(Harmony, ConstrainedHeadersAreWhatTheWholeHeaderEncodesTo) {
  const Harmony harmony(o200k(), {});
  for (const char* name : {"get_weather", "_x", "-x", ".x", "1x", "X", "web-look"}) {
    Conversation conversation = with_tools({name, "other"});
    conversation.tool_choice.mode = ToolChoiceMode::kRequired;
    std::vector<TokenId> ids = harmony.render(conversation).value();
    const auto constraint = harmony.constraint(conversation);
    const std::string header = std::string(" to=functions.") + name;
    const std::vector<TokenId> whole = o200k()->encode(header);
    const std::vector<TokenId> begun = o200k()->encode(" to=functions");
    ASSERT_TRUE(std::equal(begun.begin(), begun.end(), ids.end() - static_cast<std::ptrdiff_t>(begun.size())));
    ASSERT_TRUE(std::equal(begun.begin(), begun.end(), whole.begin())) << name;
    std::vector<TokenId> generated;
    for (std::size_t i = begun.size(); i < whole.size(); ++i) {
      const std::vector<TokenId> allowed = constraint->allowed_next_tokens(generated);
      EXPECT_NE(std::ranges::find(allowed, whole[i]), allowed.end()) << name;
      generated.push_back(whole[i]);
    }
  }
}

TEST(Harmony, MakesNoCallWithChoiceNone) {  // RENDER-06
  Conversation conversation = with_tools({"f"});
  conversation.tool_choice.mode = ToolChoiceMode::kNone;
  const Transcript got = answer(conversation, "<|channel|>commentary to=functions.f<|message|>{}<|call|>");
  EXPECT_TRUE(got.calls.empty());
  EXPECT_EQ(got.content, "{}");
}

TEST(Harmony, MakesNoCallOutsideTheAllowedSubset) {
  Conversation conversation = with_tools({"f", "g"});
  conversation.tool_choice.names = {"g"};
  EXPECT_TRUE(answer(conversation, "<|channel|>commentary to=functions.f<|message|>{}<|call|>").calls.empty());
  EXPECT_EQ(answer(conversation, "<|channel|>commentary to=functions.g<|message|>{}<|call|>").calls.size(), 1u);
}

TEST(Harmony, StopsAtTheUnionOfItsOwnAndTheCheckpointsTokens) {  // RENDER-04: never at <|end|>
  EXPECT_EQ(Harmony(o200k(), {200002, 199999, 200012}).stop_tokens(), (std::vector<TokenId>{199999, 200002, 200012}));
  EXPECT_EQ(Harmony(o200k(), {200007, 5, -1, 1 << 30}).stop_tokens(),
            (std::vector<TokenId>{5, 199999, 200002, 200012}));
}

TEST(ChatFormats, AreMadeByName) {
  EXPECT_EQ(make_chat_format("harmony", o200k(), {})->name(), "harmony");
  EXPECT_THROW(make_chat_format("chatml", o200k(), {}), StartError);
}

class Unmarked final : public ByteTokenizer {
 public:
  std::optional<TokenId> special(std::string_view text) const override {
    return text == "<|channel|>" ? std::nullopt : ByteTokenizer::special(text);
  }
};

TEST(ChatFormats, NameTheSpecialTokenThatIsMissing) {
  try {
    make_chat_format("harmony", std::make_shared<Unmarked>(), {});
    FAIL();
  } catch (const StartError& error) {
    EXPECT_NE(std::string(error.what()).find("<|channel|>"), std::string::npos);
  }
}

}  // namespace
}  // namespace rose::harmony
