// Harmony's own messages: what stands between <|start|> and its terminator (spec: harmony.md 2.1 to 2.3).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chat/conversation.h"

namespace rose::harmony {

// `## NAME` in a tools section. Without tools it is prose alone (python).
struct ToolNamespace {
  std::string name = {};
  std::string description = {};
  std::vector<ToolDefinition> tools = {};
};

struct SystemContent {
  std::string identity = "You are ChatGPT, a large language model trained by OpenAI.";
  std::string knowledge_cutoff = "2024-06";
  std::string date = {};  // empty: no date line
  std::optional<ReasoningEffort> effort = ReasoningEffort::kMedium;
  std::vector<std::string> channels = {"analysis", "commentary", "final"};
  bool channel_required = true;
  std::vector<ToolNamespace> tools = {};  // built-in ones
};

struct DeveloperContent {
  std::string instructions = {};  // empty: no section
  std::vector<ToolNamespace> tools = {};
  std::vector<ResponseFormat> formats = {};

  bool empty() const { return instructions.empty() && tools.empty() && formats.empty(); }
};

struct HarmonyMessage {
  Role role = Role::kUser;
  std::string name = {};       // tool: the whole author, such as functions.f; else after "role:"
  std::string recipient = {};  // empty: everybody
  std::string channel = {};
  std::string content_type = {};  // "<|constrain|>json": the mark becomes the special id
  std::variant<std::string, SystemContent, DeveloperContent> content = {};
};

std::string_view role_word(Role role);
std::optional<Role> role_from_word(std::string_view word);

}  // namespace rose::harmony
