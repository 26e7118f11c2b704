#include "chat/harmony/harmony.h"

#include <algorithm>
#include <utility>

#include "chat/harmony/tool_constraint.h"
#include "chat/harmony/tool_names.h"

namespace rose {

using harmony::HarmonyMessage;
using harmony::ParserStart;

namespace {

std::vector<TokenId> all_stop_tokens(const harmony::SpecialTokens& tokens, const Tokenizer& tokenizer,
                                     const std::vector<TokenId>& generation) {
  std::vector<TokenId> stops = {tokens.turn_end, tokens.call};
  if (tokens.text_end >= 0) stops.push_back(tokens.text_end);
  stops.insert(stops.end(), generation.begin(), generation.end());
  // <|end|> ends a message: as a stop it would cut every answer after its analysis, whatever a checkpoint says.
  std::erase(stops, tokens.end);
  std::erase_if(stops, [&](TokenId id) { return id < 0 || id >= tokenizer.vocabulary(); });
  std::ranges::sort(stops);
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

// A call must come next.
bool call_forced(const Conversation& conversation) {
  const ToolChoiceMode mode = conversation.tool_choice.mode;
  return mode == ToolChoiceMode::kNamed || mode == ToolChoiceMode::kRequired;
}

constexpr std::string_view kFunctions = "functions";

}  // namespace

Harmony::Harmony(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& generation_stop_tokens,
                 const harmony::RenderStyle& style)
    : tokenizer_(std::move(tokenizer)),
      renderer_(*tokenizer_, harmony::find_special_tokens(*tokenizer_), style),
      stop_tokens_(all_stop_tokens(renderer_.tokens(), *tokenizer_, generation_stop_tokens)) {}

Result<std::vector<TokenId>> Harmony::render(const Conversation& conversation) const {
  Result<std::vector<HarmonyMessage>> messages = harmony::prompt_messages(conversation);
  if (!messages) return messages.error();
  std::optional<HarmonyMessage> open;
  if (conversation.continue_final_message) {
    open = std::move(messages->back());
    messages->pop_back();
  }
  Result<std::vector<TokenId>> ids = renderer_.render(*messages);
  if (!ids) return ids;
  if (open) {
    const Result<Ok> appended = renderer_.append_open(*open, /*functions_line=*/false, *ids);
    if (!appended) return appended.error();
    return ids;
  }
  renderer_.append_start(harmony::role_word(Role::kAssistant), *ids);
  if (!call_forced(conversation)) return ids;
  const std::vector<std::string> names = harmony::callable_names(conversation);
  if (names.size() == 1) {
    const std::string recipient = std::string(kFunctions) + "." + names.front();
    renderer_.append_channel(harmony::kCallChannel, recipient, harmony::kCallContentType, *ids);
    ids->push_back(renderer_.tokens().message);
  } else {
    renderer_.append_channel(harmony::kCallChannel, kFunctions, "", *ids);
  }
  return ids;
}

std::shared_ptr<const HeaderConstraint> Harmony::constraint(const Conversation& conversation) const {
  if (!call_forced(conversation)) return nullptr;
  const std::vector<std::string> names = harmony::callable_names(conversation);
  if (names.size() < 2) return nullptr;
  return std::make_shared<harmony::ToolConstraint>(renderer_, names);
}

std::unique_ptr<ChatParser> Harmony::parser(const Conversation& conversation) const {
  std::vector<std::string> offered = harmony::callable_names(conversation);
  std::vector<std::string> withheld;
  for (const ToolDefinition& tool : conversation.tools) {
    if (std::ranges::find(offered, tool.name) == offered.end()) withheld.push_back(tool.name);
  }
  ParserStart start;
  if (conversation.continue_final_message && !conversation.messages.empty()) {
    start.at = conversation.messages.back().content.empty() ? ParserStart::At::kReasoning : ParserStart::At::kContent;
  } else if (call_forced(conversation) && offered.size() == 1) {
    start.at = ParserStart::At::kCall;
    start.call_name = offered.front();
  } else if (call_forced(conversation)) {
    start.header = {{harmony::Mark::kChannel, fmt::format("{} to={}", harmony::kCallChannel, kFunctions)}};
  }
  return std::make_unique<harmony::Parser>(tokenizer_, renderer_.tokens(),
                                           harmony::ToolNames(std::move(offered), std::move(withheld)), start);
}

}  // namespace rose
