// Rendering against the golden files: ids equal, in the crate's style for the crate's conversations and in ours for
// prompts.
#include "chat/harmony/render.h"

#include <gtest/gtest.h>

#include "chat/harmony/builtin_tools.h"
#include "chat/harmony/content_text.h"
#include "chat/harmony/harmony.h"
#include "chat/harmony/strict_parser.h"
#include "chat/harmony/test_support.h"

namespace rose::harmony {
namespace {

std::string text_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

std::vector<ToolNamespace> namespaces_of(const json::Object& object) {
  std::vector<ToolNamespace> spaces;
  if (!object.contains("tools")) return spaces;
  for (const auto& item : object.at("tools").as_object()) {
    const json::Object& from = item.value().get_object();
    ToolNamespace space{.name = text_of(from, "name"), .description = text_of(from, "description")};
    for (const json::Value& value : from.at("tools").as_array()) {
      const json::Object& tool = value.get_object();
      ToolDefinition made{.name = text_of(tool, "name"), .description = text_of(tool, "description")};
      if (const json::Value* parameters = tool.if_contains("parameters")) made.parameters = *parameters;
      space.tools.push_back(std::move(made));
    }
    spaces.push_back(std::move(space));
  }
  return spaces;
}

SystemContent system_of(const json::Object& object) {
  SystemContent content{.identity = text_of(object, "model_identity"),
                        .knowledge_cutoff = text_of(object, "knowledge_cutoff"),
                        .date = text_of(object, "conversation_start_date")};
  const std::string effort = text_of(object, "reasoning_effort");
  content.effort = effort == "Low"    ? ReasoningEffort::kLow
                   : effort == "High" ? ReasoningEffort::kHigh
                                      : ReasoningEffort::kMedium;
  const json::Object& channels = object.at("channel_config").as_object();
  content.channels.clear();
  for (const json::Value& channel : channels.at("valid_channels").as_array()) {
    content.channels.emplace_back(channel.get_string());
  }
  content.channel_required = channels.at("channel_required").as_bool();
  content.tools = namespaces_of(object);
  return content;
}

HarmonyMessage message_of(const json::Object& object) {
  HarmonyMessage message{.role = *role_from_word(text_of(object, "role")),
                         .name = text_of(object, "name"),
                         .recipient = text_of(object, "recipient"),
                         .channel = text_of(object, "channel"),
                         .content_type = text_of(object, "content_type")};
  const json::Object& content = object.at("content").as_array().at(0).as_object();
  const std::string type = text_of(content, "type");
  if (type == "system_content") {
    message.content = system_of(content);
  } else if (type == "developer_content") {
    message.content =
        DeveloperContent{.instructions = text_of(content, "instructions"), .tools = namespaces_of(content)};
  } else {
    message.content = text_of(content, "text");
  }
  return message;
}

class Golden : public testing::TestWithParam<GoldenCase> {};
std::string case_name(const testing::TestParamInfo<GoldenCase>& info) {
  std::string name;
  for (const char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

using CrateRendering = Golden;

TEST_P(CrateRendering, HasTheSameIds) {
  const json::Value value = GetParam().input();
  const json::Object& input = value.get_object();
  std::vector<HarmonyMessage> messages;
  for (const json::Value& message : input.at("messages").as_array()) {
    messages.push_back(message_of(message.get_object()));
  }
  RenderStyle style = kCrateStyle;
  if (!input.at("drop").as_bool()) style.filter = AnalysisFilter::kKeepAll;
  const SpecialTokens tokens = find_special_tokens(*o200k());
  const Renderer renderer(*o200k(), tokens, style);
  Result<std::vector<TokenId>> ids =
      input.at("training").as_bool() ? renderer.render_for_training(messages) : renderer.render(messages);
  ASSERT_TRUE(ids.ok());
  if (input.at("completion").as_bool()) renderer.append_start("assistant", *ids);
  EXPECT_EQ(o200k()->decode_all(*ids), GetParam().fields.at("text"));
  EXPECT_EQ(*ids, GetParam().ids());
}

INSTANTIATE_TEST_SUITE_P(Files, CrateRendering, testing::ValuesIn(read_golden("render")), case_name);

using Prompt = Golden;

TEST_P(Prompt, HasTheGoldenIds) {
  const Harmony harmony(o200k(), {});
  const Result<std::vector<TokenId>> ids = harmony.render(conversation_of(GetParam().input()));
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(o200k()->decode_all(*ids), GetParam().fields.at("text"));
  EXPECT_EQ(*ids, GetParam().ids());
}

TEST_P(Prompt, HoldsOnlySpecialIdsThatTheRendererMade) {
  const Harmony harmony(o200k(), {});
  const Result<std::vector<TokenId>> ids = harmony.render(conversation_of(GetParam().input()));
  const SpecialTokens tokens = find_special_tokens(*o200k());
  const auto count = [&](TokenId id) { return std::ranges::count(*ids, id); };
  // RENDER-05: an inference prompt never says that a turn is over. TOK-05: one start a message, and one for the answer.
  EXPECT_EQ(count(tokens.turn_end), 0);
  EXPECT_EQ(count(tokens.start), count(tokens.end) + count(tokens.call) + 1);
}

INSTANTIATE_TEST_SUITE_P(Files, Prompt, testing::ValuesIn(read_golden("prompt")), case_name);

TEST(Rendering, IsReadBackByTheStrictParserAsTheSameMessages) {
  std::vector<HarmonyMessage> messages;
  const auto text = [](std::string value) { return std::variant<std::string, SystemContent, DeveloperContent>(value); };
  messages.push_back({.role = Role::kUser, .content = text("x <|end|> y")});
  messages.push_back({.role = Role::kAssistant, .channel = "analysis", .content = text("")});
  messages.push_back({.role = Role::kAssistant,
                      .recipient = "functions.f",
                      .channel = "commentary",
                      .content_type = "<|constrain|>json",
                      .content = text("{\"x\":\"é 👨‍👩‍👧‍👦\"}")});
  messages.push_back({.role = Role::kTool,
                      .name = "functions.f",
                      .recipient = "assistant",
                      .channel = "commentary",
                      .content = text(" r\n")});
  messages.push_back({.role = Role::kAssistant, .channel = "final", .content = text("done")});
  const SpecialTokens tokens = find_special_tokens(*o200k());
  for (const RecipientPlacement placement : {RecipientPlacement::kAfterRole, RecipientPlacement::kAfterChannel}) {
    const RenderStyle style{.recipient = placement, .filter = AnalysisFilter::kKeepAll};
    const Result<std::vector<TokenId>> ids = Renderer(*o200k(), tokens, style).render(messages);
    StrictParser parser(*o200k(), tokens, std::nullopt);
    for (const TokenId id : *ids) ASSERT_TRUE(parser.feed(id).ok());
    ASSERT_EQ(parser.messages().size(), messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const HarmonyMessage& read = parser.messages()[i];
      EXPECT_EQ(read.role, messages[i].role);
      EXPECT_EQ(read.name, messages[i].name);
      EXPECT_EQ(read.recipient, messages[i].recipient);
      EXPECT_EQ(read.channel, messages[i].channel);
      EXPECT_EQ(read.content_type, messages[i].content_type);
      EXPECT_EQ(std::get<std::string>(read.content), std::get<std::string>(messages[i].content));
    }
  }
}

TEST(Rendering, OfOneMessageIsThatOfAConversationOfOne) {
  const SpecialTokens tokens = find_special_tokens(*o200k());
  const Renderer renderer(*o200k(), tokens, kCrateStyle);
  const HarmonyMessage message{.role = Role::kUser, .content = std::string("hi")};
  std::vector<TokenId> alone;
  ASSERT_TRUE(renderer.append(message, false, alone).ok());
  EXPECT_EQ(alone, renderer.render({&message, 1}).value());
}

TEST(Rendering, NeedsAToolsName) {
  const SpecialTokens tokens = find_special_tokens(*o200k());
  const HarmonyMessage message{.role = Role::kTool, .content = std::string("r")};
  EXPECT_FALSE(Renderer(*o200k(), tokens, kCrateStyle).render({&message, 1}).ok());
}

TEST(Rendering, WorksWithAnyVocabularyThatHasTheSpecialTokens) {
  const auto bytes = std::make_shared<ByteTokenizer>();
  const Harmony small(bytes, {});
  const Harmony large(o200k(), {});
  const Conversation conversation = with_tools({"f"});
  const std::vector<TokenId> ids = small.render(conversation).value();
  EXPECT_EQ(bytes->decode_all(ids), o200k()->decode_all(large.render(conversation).value()));
}

TEST(SystemText, OfHighEffortAndFunctionsHasTheKnownLength) {
  const std::string text =
      system_text({.date = "2025-06-28", .effort = ReasoningEffort::kHigh}, /*functions_line=*/true, {});
  const std::vector<TokenId> ids = o200k()->encode(text);
  EXPECT_EQ(ids.size(), 71u);
  EXPECT_EQ(std::vector<TokenId>(ids.end() - 5, ids.end()), (std::vector<TokenId>{9334, 25, 461, 44580, 6120}));
}

TEST(BuiltinTools, AreTheOnesOfTheGoldenFile) {
  // The golden file's own namespaces are rendered above; this pins the texts that we hold.
  for (const GoldenCase& golden : read_golden("render")) {
    if (golden.name != "render_builtin_tools: browser and python") continue;
    const std::string text = system_text({.tools = {python_tool(), browser_tools()}}, false, kCrateStyle.schema);
    EXPECT_NE(golden.fields.at("text").find(text), std::string::npos) << text;
    return;
  }
  FAIL() << "no such case";
}

}  // namespace
}  // namespace rose::harmony
