#include "chat/harmony/test_support.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "chat/harmony/message.h"
#include "tokenizer/utf8.h"

namespace rose::harmony {
namespace {

std::string text_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

const json::Array& array_of(const json::Object& object, std::string_view key) {
  static const json::Array kNone;
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? value->get_array() : kNone;
}

Role role_of(std::string_view word) {
  const std::optional<Role> role = role_from_word(word);
  CHECK(role, "role {}", word);
  return *role;
}

ChatMessage message_of(const json::Object& object) {
  ChatMessage message{.role = role_of(text_of(object, "role")),
                      .content = text_of(object, "content"),
                      .reasoning = text_of(object, "reasoning"),
                      .tool_call_id = text_of(object, "tool_call_id"),
                      .name = text_of(object, "name")};
  for (const json::Value& value : array_of(object, "tool_calls")) {
    const json::Object& call = value.get_object();
    message.tool_calls.push_back({text_of(call, "id"), text_of(call, "name"), text_of(call, "arguments")});
  }
  return message;
}

ToolChoice choice_of(const json::Object& object) {
  ToolChoice choice;
  const std::string mode = text_of(object, "mode");
  choice.mode = mode == "none"       ? ToolChoiceMode::kNone
                : mode == "named"    ? ToolChoiceMode::kNamed
                : mode == "required" ? ToolChoiceMode::kRequired
                                     : ToolChoiceMode::kAuto;
  for (const json::Value& name : array_of(object, "names")) choice.names.emplace_back(name.get_string());
  return choice;
}

void read_golden_file(const std::string& path, const std::string& kind, std::vector<GoldenCase>& out) {
  const std::string file = read_file(path);
  std::string_view rest = file;
  std::string file_kind;
  const std::string stem = std::filesystem::path(path).stem();
  bool in_text = false;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    if (in_text && line.starts_with("| ")) {
      if (file_kind != kind) continue;
      std::string& text = out.back().fields["text"];
      text += line.substr(2);
      text += '\n';
      continue;
    }
    in_text = line == "text:";
    const std::size_t colon = line.find(':');
    CHECK(colon != std::string_view::npos, "{}: {}", path, line);
    const std::string key(line.substr(0, colon));
    const std::string value(in_text ? "" : line.substr(std::min(colon + 2, line.size())));
    if (key == "kind") file_kind = value;
    if (file_kind != kind) continue;
    if (key == "case") {
      out.push_back({stem + ": " + value, {}});
    } else if (key != "kind") {
      out.back().fields[key] = value;
    }
  }
}

}  // namespace

std::vector<TokenId> GoldenCase::ids() const {
  std::vector<TokenId> ids;
  std::istringstream in(fields.at("ids"));
  for (TokenId id = 0; in >> id;) ids.push_back(id);
  return ids;
}

std::vector<GoldenCase> read_golden(const std::string& kind) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ROSE_SOURCE_DIR "/tests/golden/harmony")) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<GoldenCase> cases;
  for (const std::string& path : paths) read_golden_file(path, kind, cases);
  for (GoldenCase& golden : cases) {
    if (const auto text = golden.fields.find("text"); text != golden.fields.end()) text->second.pop_back();
  }
  CHECK(!cases.empty(), "no golden cases of kind {}", kind);
  return cases;
}

Conversation conversation_of(const json::Value& value) {
  const json::Object& object = value.get_object();
  Conversation conversation;
  for (const json::Value& message : array_of(object, "messages")) {
    conversation.messages.push_back(message_of(message.get_object()));
  }
  for (const json::Value& item : array_of(object, "tools")) {
    const json::Object& tool = item.get_object();
    ToolDefinition made{.name = text_of(tool, "name"), .description = text_of(tool, "description")};
    if (const json::Value* parameters = tool.if_contains("parameters")) made.parameters = *parameters;
    conversation.tools.push_back(std::move(made));
  }
  if (const json::Value* choice = object.if_contains("tool_choice")) {
    conversation.tool_choice = choice_of(choice->get_object());
  }
  if (const json::Value* item = object.if_contains("response_format")) {
    const json::Object& format = item->get_object();
    conversation.response_format =
        ResponseFormat{text_of(format, "name"), text_of(format, "description"), format.at("schema")};
  }
  const std::string effort = text_of(object, "effort");
  if (effort == "low") conversation.effort = ReasoningEffort::kLow;
  if (effort == "high") conversation.effort = ReasoningEffort::kHigh;
  conversation.date = text_of(object, "date");
  conversation.continue_final_message = object.contains("continue");
  return conversation;
}

Conversation with_tools(const std::vector<std::string>& names) {
  Conversation conversation;
  conversation.messages.push_back({.role = Role::kUser, .content = "hi"});
  for (const std::string& name : names) conversation.tools.push_back({.name = name});
  return conversation;
}

void add_events(const std::vector<ChatEvent>& events, Transcript& transcript) {
  const int calls = static_cast<int>(transcript.calls.size());
  int open = calls;
  for (const ChatEvent& event : events) {
    const bool of_call = event.kind != ChatEventKind::kReasoning && event.kind != ChatEventKind::kContent;
    const bool begins = event.kind == ChatEventKind::kToolCallBegin;
    EXPECT_EQ(event.call, !of_call ? -1 : begins ? open : open - 1);
    EXPECT_EQ(event.name.empty(), !begins);
    if (of_call && !begins) {
      EXPECT_FALSE(transcript.calls.back().ended);
    }
    switch (event.kind) {
      case ChatEventKind::kReasoning:
        transcript.reasoning += event.text;
        break;
      case ChatEventKind::kContent:
        transcript.content += event.text;
        break;
      case ChatEventKind::kToolCallBegin:
        transcript.calls.push_back({event.name, "", false});
        ++open;
        break;
      case ChatEventKind::kToolCallArguments:
        transcript.calls.back().arguments += event.text;
        break;
      case ChatEventKind::kToolCallEnd:
        transcript.calls.back().ended = true;
        break;
    }
    // Each delta is complete UTF-8 and says something.
    Utf8Stream stream;
    std::string valid;
    stream.feed(event.text, valid);
    EXPECT_EQ(valid, event.text);
    EXPECT_FALSE(stream.pending());
    const bool has_text = !begins && event.kind != ChatEventKind::kToolCallEnd;
    EXPECT_EQ(event.text.empty(), !has_text);
  }
}

Transcript parse(const ChatFormat& format, const Conversation& conversation, const std::vector<TokenId>& ids,
                 const Tokenizer& tokenizer) {
  const std::unique_ptr<ChatParser> parser = format.parser(conversation);
  Transcript transcript;
  for (const TokenId id : ids) {
    std::vector<ChatEvent> events;
    parser->feed(id, events);
    add_events(events, transcript);
  }
  std::vector<ChatEvent> events;
  parser->finish(events);
  add_events(events, transcript);
  transcript.called_tool = parser->called_tool();
  transcript.wants_stop = parser->wants_stop();
  transcript.reasoning_tokens = parser->reasoning_tokens();
  for (const std::int64_t position : parser->content_positions()) {
    transcript.content_tokens += tokenizer.decode(ids.at(static_cast<std::size_t>(position)));
  }
  return transcript;
}

}  // namespace rose::harmony
