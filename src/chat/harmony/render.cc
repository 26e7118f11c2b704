#include "chat/harmony/render.h"

#include <algorithm>
#include <optional>

#include "chat/harmony/content_text.h"

namespace rose::harmony {
namespace {

bool is_assistant_final(const HarmonyMessage& message) {
  return message.role == Role::kAssistant && message.channel == "final";
}

bool any_functions(std::span<const HarmonyMessage> messages) {
  return std::ranges::any_of(messages, [](const HarmonyMessage& message) {
    const auto* developer = std::get_if<DeveloperContent>(&message.content);
    return developer != nullptr && declares_functions(*developer);
  });
}

// Analysis before this index goes.
std::size_t analysis_from(std::span<const HarmonyMessage> messages, AnalysisFilter filter) {
  if (filter == AnalysisFilter::kKeepAll) return 0;
  std::optional<std::size_t> first_final;
  std::optional<std::size_t> last_final;
  bool last_assistant_is_final = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == Role::kAssistant) last_assistant_is_final = is_assistant_final(messages[i]);
    if (messages[i].channel == "final" && !first_final) first_final = i;
    if (is_assistant_final(messages[i])) last_final = i;
  }
  if (filter == AnalysisFilter::kBeforeLastFinal) return last_final.value_or(0);
  return last_assistant_is_final ? first_final.value_or(0) : 0;
}

}  // namespace

std::vector<bool> kept_messages(std::span<const HarmonyMessage> messages, AnalysisFilter filter) {
  const std::size_t from = analysis_from(messages, filter);
  std::vector<bool> kept(messages.size(), true);
  for (std::size_t i = 0; i < from; ++i) kept[i] = messages[i].channel != "analysis";
  return kept;
}

void Renderer::append_start(std::string_view author, std::vector<TokenId>& out) const {
  out.push_back(tokens_.start);
  tokenizer_.encode_append(author, out);
}

void Renderer::append_content_type(std::string_view content_type, std::vector<TokenId>& out) const {
  if (content_type.empty()) return;
  if (content_type.starts_with(kConstrainText)) {
    tokenizer_.encode_append(" ", out);
    out.push_back(tokens_.constrain);
    tokenizer_.encode_append(content_type.substr(kConstrainText.size()), out);
  } else {
    tokenizer_.encode_append(" " + std::string(content_type), out);
  }
}

void Renderer::append_channel(std::string_view channel, std::string_view recipient, std::string_view content_type,
                              std::vector<TokenId>& out) const {
  if (!channel.empty()) {
    out.push_back(tokens_.channel);
    tokenizer_.encode_append(channel, out);
  }
  if (!recipient.empty()) tokenizer_.encode_append(" to=" + std::string(recipient), out);
  append_content_type(content_type, out);
}

Result<Ok> Renderer::append_open(const HarmonyMessage& message, bool functions_line, std::vector<TokenId>& out) const {
  std::string author(role_word(message.role));
  if (message.role == Role::kTool) {
    if (message.name.empty()) return RequestError{400, "a tool message needs the name of the tool"};
    author = message.name;
  } else if (!message.name.empty()) {
    author += ":" + message.name;
  }
  append_start(author, out);
  const std::string_view recipient = message.recipient == "all" ? "" : std::string_view(message.recipient);
  // A tool's own header keeps the recipient beside its author: that is how results look in either style.
  const bool after_channel = style_.recipient == RecipientPlacement::kAfterChannel &&
                             message.role == Role::kAssistant && !message.channel.empty();
  if (!after_channel && !recipient.empty()) tokenizer_.encode_append(" to=" + std::string(recipient), out);
  append_channel(message.channel, after_channel ? recipient : "", message.content_type, out);
  out.push_back(tokens_.message);
  if (const auto* text = std::get_if<std::string>(&message.content)) {
    tokenizer_.encode_append(*text, out);
  } else if (const auto* system = std::get_if<SystemContent>(&message.content)) {
    CHECK(message.role == Role::kSystem, "system content in a message of role {}", role_word(message.role));
    tokenizer_.encode_append(system_text(*system, functions_line, style_.schema), out);
  } else {
    CHECK(message.role == Role::kDeveloper, "developer content in a message of role {}", role_word(message.role));
    tokenizer_.encode_append(developer_text(std::get<DeveloperContent>(message.content), style_.schema), out);
  }
  return Ok{};
}

Result<Ok> Renderer::append(const HarmonyMessage& message, bool functions_line, std::vector<TokenId>& out) const {
  const Result<Ok> opened = append_open(message, functions_line, out);
  if (!opened) return opened;
  const bool call = message.role == Role::kAssistant && !message.recipient.empty();
  out.push_back(call ? tokens_.call : tokens_.end);
  return Ok{};
}

Result<std::vector<TokenId>> Renderer::render(std::span<const HarmonyMessage> messages) const {
  const bool functions_line = any_functions(messages);
  const std::vector<bool> kept = kept_messages(messages, style_.filter);
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!kept[i]) continue;
    const Result<Ok> appended = append(messages[i], functions_line, out);
    if (!appended) return appended.error();
  }
  return out;
}

Result<std::vector<TokenId>> Renderer::render_for_training(std::span<const HarmonyMessage> messages) const {
  Result<std::vector<TokenId>> out = render(messages);
  if (out && !messages.empty() && is_assistant_final(messages.back()) && out->back() == tokens_.end) {
    out->back() = tokens_.turn_end;
  }
  return out;
}

}  // namespace rose::harmony
