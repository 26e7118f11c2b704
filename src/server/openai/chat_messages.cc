#include "server/openai/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace rose::openai {
namespace {

// A string, or parts of type text; null and absent give "".
std::string read_content(Fields& message, const ApiLimits& limits) {
  const json::Value* content = message.value("content");
  if (content == nullptr || !message.ok()) return {};
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array()) {
    message.wrong_type("content", "a string or an array of parts", *content);
    return {};
  }
  const json::Array& parts = content->get_array();
  if (parts.size() > limits.parts_max) {
    message.fail("content", fmt::format("Invalid '{}': at most {} parts.", message.path("content"), limits.parts_max),
                 "array_above_max_length");
  }
  std::string out;
  for (std::size_t i = 0; i < parts.size() && message.ok(); ++i) {
    const std::string name = fmt::format("content[{}]", i);
    if (!parts[i].is_object()) {
      message.wrong_type(name, "an object", parts[i]);
      break;
    }
    Fields part = message.at(parts[i].get_object(), message.path(name));
    const std::string_view type = part.required_text("type").value_or("");
    if (!part.ok()) break;
    if (type == "text" || type == "input_text" || type == "output_text") {
      out += part.required_text("text").value_or("");
    } else if (type == "refusal") {
      out += part.required_text("refusal").value_or("");
    } else {
      part.fail("type",
                fmt::format("Content parts of type '{}' are not supported: this model reads and writes text.",
                            type.substr(0, 64)),
                "unsupported_value");
    }
  }
  return out;
}

// Every spelling under which clients send the analysis back; the first that is not empty.
std::string read_reasoning(const json::Object& message) {
  for (const std::string_view name : {"reasoning", "reasoning_content", "thinking"}) {
    const json::Value* found = message.if_contains(name);
    if (found != nullptr && found->is_string() && !found->get_string().empty()) return std::string(found->get_string());
  }
  std::string out;
  const json::Value* details = message.if_contains("reasoning_details");
  if (details == nullptr || !details->is_array()) return out;
  for (const json::Value& entry : details->get_array()) {
    if (!entry.is_object()) continue;
    const json::Value* text = entry.get_object().if_contains("text");
    if (text != nullptr && text->is_string()) out += std::string_view(text->get_string());
  }
  return out;
}

ToolCall read_function(Fields function, std::string id) {
  ToolCall call{.id = std::move(id), .name = std::string(function.required_text("name").value_or("")), .arguments = ""};
  const json::Value* arguments = function.value("arguments");
  if (arguments == nullptr) return call;
  if (arguments->is_string()) {
    call.arguments = std::string(arguments->get_string());
  } else if (arguments->is_object()) {
    call.arguments = json::serialize(*arguments);
  } else {
    function.wrong_type("arguments", "a string", *arguments);
  }
  return call;
}

void read_tool_calls(Fields& message, ChatMessage& out) {
  if (const json::Object* legacy = message.object("function_call")) {
    out.tool_calls.push_back(read_function(message.at(*legacy, message.path("function_call")), ""));
  }
  const json::Array* calls = message.array("tool_calls");
  if (calls == nullptr) return;
  for (std::size_t i = 0; i < calls->size() && message.ok(); ++i) {
    const std::string name = fmt::format("tool_calls[{}]", i);
    if (!(*calls)[i].is_object()) return message.wrong_type(name, "an object", (*calls)[i]);
    Fields call = message.at((*calls)[i].get_object(), message.path(name));
    const std::string_view type = call.text("type").value_or("function");
    if (type != "function") {
      return call.fail("type", fmt::format("Tool calls of type '{}' are not supported.", type.substr(0, 64)),
                       "unsupported_value");
    }
    std::string id(call.required_text("id").value_or(""));
    const json::Object* function = call.object("function");
    if (function == nullptr) return call.missing("function");
    out.tool_calls.push_back(read_function(call.at(*function, call.path("function")), std::move(id)));
  }
}

std::optional<Role> role_of(std::string_view name) {
  if (name == "system") return Role::kSystem;
  if (name == "developer") return Role::kDeveloper;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool" || name == "function") return Role::kTool;
  return std::nullopt;
}

void read_message(Fields message, const json::Object& object, const ApiLimits& limits, Conversation& out) {
  const std::string_view role_name = message.required_text("role").value_or("");
  if (!message.ok()) return;
  const std::optional<Role> role = role_of(role_name);
  if (!role) {
    return message.fail("role", fmt::format("Invalid value: '{}'. Supported values are: 'system', 'developer', 'user', "
                                            "'assistant', and 'tool'.",
                                            role_name.substr(0, 64)));
  }
  ChatMessage parsed;
  parsed.role = *role;
  parsed.content = read_content(message, limits);
  if (role == Role::kAssistant) {
    parsed.reasoning = read_reasoning(object);
    read_tool_calls(message, parsed);
    // A turn that was cut before it showed anything says nothing, but clients send it back.
    if (parsed.content.empty() && parsed.reasoning.empty() && parsed.tool_calls.empty()) return;
  } else if (role_name == "tool") {
    parsed.tool_call_id = std::string(message.required_text("tool_call_id").value_or(""));
    parsed.name = std::string(message.text("name").value_or(""));
  } else if (role_name == "function") {
    parsed.name = std::string(message.required_text("name").value_or(""));
  } else if (!message.has("content")) {
    message.missing("content");
  }
  out.messages.push_back(std::move(parsed));
}

void read_tool(Fields function, std::set<std::string>& names, Conversation& out) {
  ToolDefinition tool;
  tool.name = std::string(function.required_text("name").value_or(""));
  tool.description = std::string(function.text("description").value_or(""));
  if (const json::Object* parameters = function.object("parameters")) tool.parameters = *parameters;
  function.boolean("strict");
  if (!function.ok()) return;
  if (tool.name.empty() || tool.name.size() > 64) {
    return function.fail("name", fmt::format("Invalid '{}': a name has 1 to 64 characters.", function.path("name")));
  }
  if (!names.insert(tool.name).second) {
    return function.fail("name",
                         fmt::format("Invalid '{}': the name '{}' is used twice.", function.path("name"), tool.name));
  }
  out.tools.push_back(std::move(tool));
}

std::string named_tool(Fields choice) {
  if (const json::Object* function = choice.object("function")) {
    return std::string(choice.at(*function, choice.path("function")).required_text("name").value_or(""));
  }
  return std::string(choice.required_text("name").value_or(""));
}

void require_declared(Fields& fields, std::string_view param, const std::string& name, const Conversation& out) {
  const bool declared = std::any_of(out.tools.begin(), out.tools.end(), [&](const auto& t) { return t.name == name; });
  if (!declared) {
    fields.fail(param, fmt::format("Invalid value: '{}' does not name a tool of this request.", param));
  }
}

void read_allowed_tools(Fields choice, Conversation& out) {
  const json::Object* inner = choice.object("allowed_tools");
  Fields allowed = inner != nullptr ? choice.at(*inner, choice.path("allowed_tools")) : choice;
  const std::string_view mode = allowed.required_text("mode").value_or("");
  if (allowed.ok() && mode != "auto" && mode != "required") {
    allowed.fail("mode", "Invalid value: supported values are: 'auto' and 'required'.");
  }
  out.tool_choice.mode = mode == "required" ? ToolChoiceMode::kRequired : ToolChoiceMode::kAuto;
  const json::Array* tools = allowed.array("tools");
  if (tools == nullptr || tools->empty()) return allowed.missing("tools");
  for (std::size_t i = 0; i < tools->size() && allowed.ok(); ++i) {
    const std::string name = fmt::format("tools[{}]", i);
    if (!(*tools)[i].is_object()) return allowed.wrong_type(name, "an object", (*tools)[i]);
    out.tool_choice.names.push_back(named_tool(allowed.at((*tools)[i].get_object(), allowed.path(name))));
    require_declared(allowed, name, out.tool_choice.names.back(), out);
  }
}

void read_choice_text(Fields& fields, std::string_view param, std::string_view text, Conversation& out) {
  if (text == "auto") return;
  if (text == "none") {
    out.tool_choice.mode = ToolChoiceMode::kNone;
  } else if (text == "required") {
    out.tool_choice.mode = ToolChoiceMode::kRequired;
  } else {
    fields.fail(param, fmt::format("Invalid value: '{}'. Supported values are: 'none', 'auto', and 'required'.",
                                   text.substr(0, 64)));
  }
}

}  // namespace

void read_messages(Fields& fields, const ApiLimits& limits, Conversation& out) {
  const json::Array* messages = fields.array("messages");
  if (!fields.ok()) return;
  if (messages == nullptr) return fields.missing("messages");
  if (messages->empty()) {
    return fields.fail("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.",
                       "empty_array");
  }
  if (messages->size() > limits.messages_max) {
    return fields.fail("messages", fmt::format("Invalid 'messages': at most {} messages.", limits.messages_max),
                       "array_above_max_length");
  }
  for (std::size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string name = fmt::format("messages[{}]", i);
    const json::Value& message = (*messages)[i];
    if (!message.is_object()) return fields.wrong_type(name, "an object", message);
    read_message(fields.at(message.get_object(), name), message.get_object(), limits, out);
  }
}

void read_tools(Fields& fields, const ApiLimits& limits, Conversation& out) {
  std::set<std::string> names;
  const json::Array* tools = fields.array("tools");
  const json::Array* functions = fields.array("functions");
  for (const auto& [list, param] : {std::pair{tools, "tools"}, std::pair{functions, "functions"}}) {
    if (list == nullptr) continue;
    if (list->size() > limits.tools_max) {
      return fields.fail(param, fmt::format("Invalid '{}': at most {} tools.", param, limits.tools_max),
                         "array_above_max_length");
    }
    for (std::size_t i = 0; i < list->size() && fields.ok(); ++i) {
      const std::string name = fmt::format("{}[{}]", param, i);
      if (!(*list)[i].is_object()) return fields.wrong_type(name, "an object", (*list)[i]);
      Fields tool = fields.at((*list)[i].get_object(), name);
      if (list == functions) {
        read_tool(tool, names, out);
        continue;
      }
      const std::string_view type = tool.text("type").value_or("function");
      if (type != "function") {
        return tool.fail("type",
                         fmt::format("Tools of type '{}' are not supported; use 'function'.", type.substr(0, 64)),
                         "unsupported_value");
      }
      const json::Object* function = tool.object("function");
      if (function == nullptr) return tool.missing("function");
      read_tool(tool.at(*function, tool.path("function")), names, out);
    }
  }
}

void read_tool_choice(Fields& fields, Conversation& out) {
  std::string_view param = "tool_choice";
  const json::Value* choice = fields.value(param);
  if (choice == nullptr) {
    param = "function_call";
    choice = fields.value(param);
  }
  if (choice == nullptr || !fields.ok()) return;
  if (choice->is_string()) {
    read_choice_text(fields, param, choice->get_string(), out);
  } else if (choice->is_object()) {
    Fields inner = fields.at(choice->get_object(), std::string(param));
    const std::string_view type = inner.text("type").value_or("function");
    if (type == "allowed_tools") {
      read_allowed_tools(inner, out);
    } else if (type == "function") {
      out.tool_choice.mode = ToolChoiceMode::kNamed;
      out.tool_choice.names = {named_tool(inner)};
      if (fields.ok()) require_declared(fields, param, out.tool_choice.names.front(), out);
    } else {
      inner.fail("type", fmt::format("Tool choices of type '{}' are not supported.", type.substr(0, 64)),
                 "unsupported_value");
    }
  } else {
    fields.wrong_type(param, "a string or an object", *choice);
  }
  const bool needs_tools = out.tool_choice.mode == ToolChoiceMode::kRequired || !out.tool_choice.names.empty();
  if (fields.ok() && needs_tools && out.tools.empty()) {
    fields.fail(param, fmt::format("Invalid value for '{}': it is only allowed when 'tools' are specified.", param));
  }
}

void read_response_format(Fields& fields, Conversation& out) {
  const json::Object* object = fields.object("response_format");
  if (object == nullptr) return;
  Fields format = fields.at(*object, "response_format");
  const std::string_view type = format.required_text("type").value_or("");
  if (!format.ok() || type == "text") return;
  ResponseFormat parsed;
  if (type == "json_object") {
    parsed.name = "json_object";
    const json::Object* schema = format.object("schema");  // llama.cpp
    parsed.schema = schema != nullptr ? json::Value(*schema) : json::Value(json::Object{{"type", "object"}});
  } else if (type == "json_schema") {
    const json::Object* inner = format.object("json_schema");
    if (inner == nullptr) return format.missing("json_schema");
    Fields schema = format.at(*inner, "response_format.json_schema");
    parsed.name = std::string(schema.required_text("name").value_or(""));
    parsed.description = std::string(schema.text("description").value_or(""));
    schema.boolean("strict");
    const json::Object* body = schema.object("schema");
    if (schema.ok() && body == nullptr) return schema.missing("schema");
    if (body != nullptr) parsed.schema = *body;
  } else {
    return format.fail("type", fmt::format("Invalid value: '{}'. Supported values are: 'text', 'json_object', and "
                                           "'json_schema'.",
                                           type.substr(0, 64)));
  }
  if (format.ok()) out.response_format = std::move(parsed);
}

}  // namespace rose::openai
