#include "server/openai/chat_request.h"

#include <fmt/format.h>

#include <array>

#include "server/openai/chat_messages.h"
#include "server/openai/sampling_request.h"

namespace rose::openai {
namespace {

// Fields that would change the answer and that nothing here does: ignoring them would be a wrong answer, said nicely.
constexpr std::array kUnsupported = {
    "audio",         "web_search_options", "chat_template", "structured_outputs", "guided_json",     "guided_regex",
    "guided_choice", "guided_grammar",     "grammar",       "json_schema",        "prompt_logprobs", "use_beam_search",
};

void refuse_unsupported(Fields& fields) {
  for (const std::string_view name : kUnsupported) {
    const json::Value* found = fields.value(name);
    if (found == nullptr || (found->is_bool() && !found->get_bool())) continue;
    fields.fail(name, fmt::format("Unsupported parameter: '{}'.", name), "unsupported_parameter");
  }
  const json::Array* modalities = fields.array("modalities");
  if (modalities == nullptr) return;
  for (const json::Value& entry : *modalities) {
    if (entry.is_string() && entry.get_string() == "text") continue;
    fields.fail("modalities", "Unsupported value: this model writes text only.", "unsupported_value");
  }
}

void read_effort(Fields& fields, std::string_view name, Conversation& out) {
  const auto text = fields.text(name);
  if (!text) return;
  if (*text == "low" || *text == "minimal" || *text == "none") {
    out.effort = ReasoningEffort::kLow;
  } else if (*text == "medium") {
    out.effort = ReasoningEffort::kMedium;
  } else if (*text == "high" || *text == "xhigh" || *text == "max") {
    out.effort = ReasoningEffort::kHigh;
  } else {
    fields.fail(name, fmt::format("Invalid value: '{}'. Supported values are: 'none', 'minimal', 'low', 'medium', "
                                  "'high', 'xhigh', and 'max'.",
                                  text->substr(0, 64)));
  }
}

void read_reasoning_options(Fields& fields, ChatRequest& out) {
  if (const json::Object* kwargs = fields.object("chat_template_kwargs")) {
    Fields inner = fields.at(*kwargs, "chat_template_kwargs");
    for (const auto& entry : *kwargs) {
      const std::string_view key = entry.key();
      if (key == "reasoning_effort" || key == "enable_thinking" || key == "thinking") continue;
      inner.fail(key.substr(0, 64), "Unsupported parameter: of chat_template_kwargs only 'reasoning_effort' is read.",
                 "unsupported_parameter");
    }
    read_effort(inner, "reasoning_effort", out.conversation);
  }
  if (const json::Object* reasoning = fields.object("reasoning")) {
    Fields inner = fields.at(*reasoning, "reasoning");
    if (!inner.boolean("enabled").value_or(true)) out.conversation.effort = ReasoningEffort::kLow;
    read_effort(inner, "effort", out.conversation);
    if (inner.boolean("exclude").value_or(false)) out.include_reasoning = false;
  }
  read_effort(fields, "reasoning_effort", out.conversation);
  if (!fields.boolean("include_reasoning").value_or(true)) out.include_reasoning = false;
  if (fields.text("reasoning_format").value_or("") == "hidden") out.include_reasoning = false;
}

void read_logprobs(Fields& fields, SamplingRequest& out) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (!wanted && top.value_or(0) > 0) {
    fields.fail("top_logprobs", "Invalid 'top_logprobs': it is only allowed when 'logprobs' is true.");
  }
  if (wanted) out.decoding.top_logprobs = static_cast<int>(top.value_or(0));
}

}  // namespace

Result<ChatRequest> parse_chat_request(const json::Value& body, const ApiLimits& limits) {
  if (!body.is_object()) return RequestError{400, "The request body must be a JSON object.", "", ""};
  Fields fields(body.get_object());
  ChatRequest out;
  refuse_unsupported(fields);
  read_sampling(fields, limits, out.sampling);
  read_logprobs(fields, out.sampling);
  read_messages(fields, limits, out.conversation);
  read_tools(fields, limits, out.conversation);
  read_tool_choice(fields, out.conversation);
  read_response_format(fields, out.conversation);
  read_reasoning_options(fields, out);
  fields.boolean("parallel_tool_calls");
  out.conversation.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (fields.ok() && out.conversation.continue_final_message &&
      (out.conversation.messages.empty() || out.conversation.messages.back().role != Role::kAssistant)) {
    fields.fail("continue_final_message", "Invalid 'continue_final_message': the last message is not the assistant's.");
  }
  if (fields.ok() && out.conversation.messages.empty()) {
    fields.fail("messages", "Invalid 'messages': no message says anything.");
  }
  if (!fields.ok()) return fields.error();
  return out;
}

}  // namespace rose::openai
