// A conversation as any chat API states it: roles, text, tools. No chat format's tokens and no endpoint's JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.h"

namespace rose {

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool };
enum class ReasoningEffort { kLow, kMedium, kHigh };

struct ToolCall {
  std::string id = {};
  std::string name = {};       // without a namespace
  std::string arguments = {};  // JSON text, verbatim
};

struct ChatMessage {
  Role role = Role::kUser;
  std::string content = {};               // text parts, concatenated
  std::string reasoning = {};             // assistant: replayed analysis
  std::vector<ToolCall> tool_calls = {};  // assistant
  std::string tool_call_id = {};          // tool: which call this answers
  std::string name = {};                  // tool: the function, when known without an id (legacy)
};

struct ToolDefinition {
  std::string name = {};
  std::string description = {};
  std::optional<json::Value> parameters = {};  // JSON Schema
};

struct ResponseFormat {
  std::string name = {};
  std::string description = {};
  json::Value schema = {};
};

enum class ToolChoiceMode { kAuto, kNone, kRequired, kNamed };
struct ToolChoice {
  ToolChoiceMode mode = ToolChoiceMode::kAuto;
  std::vector<std::string> names = {};  // kNamed: the one; kAuto, kRequired: allowed ones, empty = all
};

struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::vector<ToolDefinition> tools = {};
  ToolChoice tool_choice = {};
  std::optional<ResponseFormat> response_format = {};
  ReasoningEffort effort = ReasoningEffort::kMedium;
  std::string date = {};                // YYYY-MM-DD, of the system message
  bool continue_final_message = false;  // leave the last assistant message open
};

}  // namespace rose
