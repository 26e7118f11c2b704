#include "chat/harmony/content_text.h"

#include <algorithm>

#include "chat/harmony/special_tokens.h"

namespace rose::harmony {
namespace {

// `prefix` before each line. A line break at the very end opens no further line.
void append_lines(std::string_view text, std::string_view prefix, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r') && end < text.size()) line.remove_suffix(1);
    out += prefix;
    out += line;
    out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string namespace_text(const ToolNamespace& space, const SchemaStyle& style) {
  std::string out = "## " + space.name + "\n";
  if (space.description.empty() && space.tools.empty()) return out;
  out += '\n';
  append_lines(space.description, space.tools.empty() ? "" : "// ", out);
  if (!space.tools.empty()) {
    out += "namespace " + space.name + " {\n\n";
    for (const ToolDefinition& tool : space.tools) {
      append_lines(tool.description, "// ", out);
      const json::Value* schema = tool.parameters ? &*tool.parameters : nullptr;
      out += "type " + tool.name + " = " + function_type(schema, style) + ";\n\n";
    }
    out += "} // namespace " + space.name;
  }
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

void append_section(std::string_view section, std::string& out) {
  if (section.empty()) return;
  if (!out.empty()) out += "\n\n";
  out += section;
}

void append_tools(const std::vector<ToolNamespace>& spaces, const SchemaStyle& style, std::string& out) {
  if (spaces.empty()) return;
  append_section("# Tools", out);
  std::vector<const ToolNamespace*> sorted;
  for (const ToolNamespace& space : spaces) sorted.push_back(&space);
  std::ranges::sort(sorted, {}, &ToolNamespace::name);
  for (const ToolNamespace* space : sorted) append_section(namespace_text(*space, style), out);
}

std::string_view effort_word(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow:
      return "low";
    case ReasoningEffort::kMedium:
      return "medium";
    case ReasoningEffort::kHigh:
      return "high";
  }
  CHECK(false, "effort {}", static_cast<int>(effort));
}

std::string channels_text(const SystemContent& content, bool functions_line) {
  if (content.channels.empty()) return "";
  std::string out = "# Valid channels: ";
  for (std::size_t i = 0; i < content.channels.size(); ++i) out += (i > 0 ? ", " : "") + content.channels[i];
  out += '.';
  if (content.channel_required) out += " Channel must be included for every message.";
  if (functions_line) out += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  return out;
}

}  // namespace

std::string system_text(const SystemContent& content, bool functions_line, const SchemaStyle& style) {
  std::string top = content.identity;
  const auto line = [&](std::string_view label, std::string_view value) {
    if (value.empty()) return;
    if (!top.empty()) top += '\n';
    top += label;
    top += value;
  };
  line("Knowledge cutoff: ", content.knowledge_cutoff);
  line("Current date: ", content.date);

  std::string out;
  append_section(top, out);
  if (content.effort) append_section("Reasoning: " + std::string(effort_word(*content.effort)), out);
  append_tools(content.tools, style, out);
  append_section(channels_text(content, functions_line), out);
  return out;
}

std::string developer_text(const DeveloperContent& content, const SchemaStyle& style) {
  std::string out;
  if (!content.instructions.empty()) {
    append_section("# Instructions", out);
    append_section(content.instructions, out);
  }
  append_tools(content.tools, style, out);
  if (!content.formats.empty()) append_section("# Response Formats", out);
  for (const ResponseFormat& format : content.formats) {
    append_section("## " + format.name, out);
    std::string body;
    append_lines(format.description, "// ", body);
    append_section(body + compact_json(format.schema), out);
  }
  return out;
}

bool declares_functions(const DeveloperContent& content) {
  return std::ranges::any_of(
      content.tools, [](const ToolNamespace& space) { return space.name == "functions" && !space.tools.empty(); });
}

}  // namespace rose::harmony
