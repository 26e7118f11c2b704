#include "chat/harmony/builtin_tools.h"

namespace rose::harmony {
namespace {

struct Argument {
  std::string_view name;
  json::Value type;                     // a name, or an array of names
  json::Value default_value = nullptr;  // null: none
  bool required = false;
};

ToolDefinition tool(std::string name, std::string description, std::initializer_list<Argument> arguments) {
  json::Object properties;
  json::Array required;
  for (const Argument& argument : arguments) {
    json::Object schema{{"type", argument.type}};
    if (!argument.default_value.is_null()) schema["default"] = argument.default_value;
    properties[argument.name] = std::move(schema);
    if (argument.required) required.emplace_back(argument.name);
  }
  json::Value parameters = json::Object{{"type", "object"}, {"properties", properties}, {"required", required}};
  return {.name = std::move(name), .description = std::move(description), .parameters = std::move(parameters)};
}

}  // namespace

// The texts are the model's training data: not a word may differ.
ToolNamespace browser_tools() {
  const json::Array number_or_string{"number", "string"};
  return {
      .name = "browser",
      .description =
          "Tool for browsing.\n"
          "The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
          "Cite information from the tool using the following format:\n"
          "`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n"
          "Do not quote more than 10 words directly from the tool output.\n"
          "sources=web (default: web)",
      .tools = {
          tool("search", "Searches for information related to `query` and displays `topn` results.",
               {{"query", "string", nullptr, true}, {"topn", "number", 10}, {"source", "string"}}),
          tool("open",
               "Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing "
               "`num_lines` lines.\n"
               "Valid link ids are displayed with the formatting: `【{id}†.*】`.\n"
               "If `cursor` is not provided, the most recent page is implied.\n"
               "If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n"
               "If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered "
               "on the most relevant passage, if available.\n"
               "Use this function without `id` to scroll to a new location of an opened page.",
               {{"id", number_or_string, -1},
                {"cursor", "number", -1},
                {"loc", "number", -1},
                {"num_lines", "number", -1},
                {"view_source", "boolean", false},
                {"source", "string"}}),
          tool("find", "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
               {{"pattern", "string", nullptr, true}, {"cursor", "number", -1}}),
      }};
}

ToolNamespace python_tool() {
  return {.name = "python",
          .description =
              "Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. "
              "This tool should be used for internal reasoning, but not for code that is intended to be visible to the "
              "user (e.g. when creating plots, tables, or files).\n\n"
              "When you send a message containing Python code to python, it will be executed in a stateful Jupyter "
              "notebook environment. python will respond with the output of the execution or time out after 120.0 "
              "seconds. The drive at '/mnt/data' can be used to save and persist user files. Internet access for this "
              "session is UNKNOWN. Depends on the cluster."};
}

bool is_builtin_recipient(std::string_view recipient) {
  const std::string_view first = recipient.substr(0, recipient.find('.'));
  return first == "python" || first == "browser" || first == "container" || first == "repo_browser";
}

}  // namespace rose::harmony
