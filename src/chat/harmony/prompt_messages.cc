#include <algorithm>
#include <map>
#include <set>

#include "chat/harmony/harmony.h"
#include "chat/harmony/tool_names.h"

namespace rose::harmony {
namespace {

constexpr std::string_view kNameRule = "must be 1 to 64 letters, digits, '_', '-' or '.'";

RequestError error(std::string param, std::string message) {
  return {.status = 400, .message = std::move(message), .param = std::move(param)};
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Tools that the prompt shows.
std::vector<ToolDefinition> shown_tools(const Conversation& conversation) {
  const ToolChoice& choice = conversation.tool_choice;
  if (choice.mode == ToolChoiceMode::kNone) return {};
  if (choice.mode == ToolChoiceMode::kNamed || choice.names.empty()) return conversation.tools;
  std::vector<ToolDefinition> tools;
  for (const ToolDefinition& tool : conversation.tools) {
    if (contains(choice.names, tool.name)) tools.push_back(tool);
  }
  return tools;
}

Result<Ok> check_tools(const Conversation& conversation) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < conversation.tools.size(); ++i) {
    const std::string& name = conversation.tools[i].name;
    const std::string param = fmt::format("tools[{}].name", i);
    if (!is_tool_name(name)) return error(param, fmt::format("tool name \"{}\" {}", name, kNameRule));
    if (!names.insert(name).second) return error(param, fmt::format("tool \"{}\" is declared twice", name));
  }
  const ToolChoice& choice = conversation.tool_choice;
  for (const std::string& name : choice.names) {
    if (!names.contains(name)) return error("tool_choice", fmt::format("tool \"{}\" is not among the tools", name));
  }
  if (choice.mode == ToolChoiceMode::kNamed && choice.names.size() != 1) {
    return error("tool_choice", "a named tool choice names one tool");
  }
  if (choice.mode == ToolChoiceMode::kRequired && conversation.tools.empty()) {
    return error("tool_choice", "a call is required, but there are no tools");
  }
  return Ok{};
}

Result<Ok> check_continued(const Conversation& conversation) {
  if (!conversation.continue_final_message) return Ok{};
  const ChatMessage& last = conversation.messages.back();
  const bool text = !last.content.empty() || !last.reasoning.empty();
  if (last.role != Role::kAssistant || !last.tool_calls.empty() || !text) {
    return error("continue_final_message", "the last message must be an assistant message with text and no tool calls");
  }
  const ToolChoiceMode mode = conversation.tool_choice.mode;
  if (mode == ToolChoiceMode::kNamed || mode == ToolChoiceMode::kRequired) {
    return error("tool_choice", "a call cannot be forced while a message is continued");
  }
  return Ok{};
}

class PromptWriter {
 public:
  explicit PromptWriter(const Conversation& conversation) : conversation_(conversation) {}

  Result<std::vector<HarmonyMessage>> write();

 private:
  void opening();
  void instructions(const ChatMessage& message);
  Result<Ok> assistant(const ChatMessage& message, std::size_t index);
  Result<Ok> tool(const ChatMessage& message, std::size_t index);

  const Conversation& conversation_;
  std::size_t next_ = 0;                                   // first message the opening did not take
  std::map<std::string, std::string, std::less<>> calls_;  // id -> function
  std::vector<HarmonyMessage> out_;
};

// The server's own system message and the leading developer message.
void PromptWriter::opening() {
  SystemContent system{.date = conversation_.date, .effort = conversation_.effort};
  DeveloperContent developer;
  std::vector<ToolDefinition> tools = shown_tools(conversation_);
  if (!tools.empty()) developer.tools.push_back({.name = "functions", .description = "", .tools = std::move(tools)});
  if (conversation_.response_format) developer.formats.push_back(*conversation_.response_format);
  while (next_ < conversation_.messages.size() && developer.instructions.empty()) {
    const ChatMessage& message = conversation_.messages[next_];
    if (message.role != Role::kSystem && message.role != Role::kDeveloper) break;
    developer.instructions = message.content;
    ++next_;
  }
  out_.push_back({.role = Role::kSystem, .content = std::move(system)});
  if (!developer.empty()) out_.push_back({.role = Role::kDeveloper, .content = std::move(developer)});
}

void PromptWriter::instructions(const ChatMessage& message) {
  if (message.content.empty()) return;
  DeveloperContent developer;
  developer.instructions = message.content;
  out_.push_back({.role = Role::kDeveloper, .content = std::move(developer)});
}

Result<Ok> PromptWriter::assistant(const ChatMessage& message, std::size_t index) {
  const auto write = [&](std::string_view channel, const std::string& text) {
    out_.push_back({.role = Role::kAssistant, .channel = std::string(channel), .content = text});
  };
  if (!message.reasoning.empty()) write("analysis", message.reasoning);
  if (!message.content.empty()) write(message.tool_calls.empty() ? "final" : "commentary", message.content);
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    if (!is_tool_name(call.name)) {
      return error(fmt::format("messages[{}].tool_calls[{}].name", index, i),
                   fmt::format("tool name \"{}\" {}", call.name, kNameRule));
    }
    if (!call.id.empty()) calls_[call.id] = call.name;
    out_.push_back({.role = Role::kAssistant,
                    .recipient = "functions." + call.name,
                    .channel = std::string(kCallChannel),
                    .content_type = std::string(kCallContentType),
                    .content = is_blank(call.arguments) ? "{}" : call.arguments});
  }
  return Ok{};
}

Result<Ok> PromptWriter::tool(const ChatMessage& message, std::size_t index) {
  const std::string id_param = fmt::format("messages[{}].tool_call_id", index);
  std::string name = message.name;
  if (!message.tool_call_id.empty()) {
    const auto call = calls_.find(message.tool_call_id);
    if (call == calls_.end()) {
      return error(id_param, fmt::format("no earlier tool call has the id \"{}\"", message.tool_call_id));
    }
    name = call->second;
  } else if (name.empty()) {
    return error(id_param, "a tool message needs the id of the call it answers");
  } else if (!is_tool_name(name)) {
    return error(fmt::format("messages[{}].name", index), fmt::format("tool name \"{}\" {}", name, kNameRule));
  }
  out_.push_back({.role = Role::kTool,
                  .name = "functions." + name,
                  .recipient = "assistant",
                  .channel = std::string(kCallChannel),
                  .content = message.content});
  return Ok{};
}

Result<std::vector<HarmonyMessage>> PromptWriter::write() {
  opening();
  for (; next_ < conversation_.messages.size(); ++next_) {
    const ChatMessage& message = conversation_.messages[next_];
    Result<Ok> written = Ok{};
    switch (message.role) {
      case Role::kSystem:
      case Role::kDeveloper:
        instructions(message);
        break;
      case Role::kUser:
        out_.push_back({.role = Role::kUser, .content = message.content});
        break;
      case Role::kAssistant:
        written = assistant(message, next_);
        break;
      case Role::kTool:
        written = tool(message, next_);
        break;
    }
    if (!written) return written.error();
  }
  return std::move(out_);
}

}  // namespace

std::vector<std::string> callable_names(const Conversation& conversation) {
  const ToolChoice& choice = conversation.tool_choice;
  if (choice.mode == ToolChoiceMode::kNamed) return choice.names;
  std::vector<std::string> names;
  for (const ToolDefinition& tool : shown_tools(conversation)) names.push_back(tool.name);
  return names;
}

Result<std::vector<HarmonyMessage>> prompt_messages(const Conversation& conversation) {
  if (conversation.messages.empty()) return error("messages", "there must be at least one message");
  for (const auto& check : {check_tools, check_continued}) {
    const Result<Ok> checked = check(conversation);
    if (!checked) return checked.error();
  }
  return PromptWriter(conversation).write();
}

}  // namespace rose::harmony
