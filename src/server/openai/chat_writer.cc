#include "server/openai/chat_writer.h"

#include <fmt/format.h>

#include <cmath>

#include "tokenizer/utf8.h"

namespace rose::openai {

json::Object usage_object(const Usage& usage) {
  return json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", json::Object{{"cached_tokens", usage.cached_tokens}}},
                      {"completion_tokens_details", json::Object{{"reasoning_tokens", usage.reasoning_tokens}}}};
}

double logprob_value(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

namespace {

json::Object token_logprob(std::int32_t token, float logprob, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.decode(token);
  json::Array numbers;
  for (const char c : bytes) numbers.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return json::Object{{"token", valid_utf8(bytes)}, {"logprob", logprob_value(logprob)}, {"bytes", std::move(numbers)}};
}

}  // namespace

json::Object logprob_object(const LogprobEntry& entry, const Tokenizer& tokenizer) {
  json::Object out = token_logprob(entry.token, entry.logprob, tokenizer);
  json::Array top;
  for (const TokenLogprob& other : entry.top) top.push_back(token_logprob(other.token, other.logprob, tokenizer));
  out["top_logprobs"] = std::move(top);
  return out;
}

std::string event_of(const json::Object& object) { return "data: " + json::serialize(object) + "\n\n"; }

void ChatAnswer::add(std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    switch (piece.kind) {
      case PieceKind::kReasoning:
        reasoning += piece.text;
        break;
      case PieceKind::kContent:
        content += piece.text;
        std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(logprobs));
        break;
      case PieceKind::kCallBegin:
        calls.push_back({.id = "", .name = std::move(piece.name), .arguments = ""});
        break;
      case PieceKind::kCallArguments:
        if (!calls.empty()) calls.back().arguments += piece.text;
        break;
    }
  }
}

std::string ChatWriter::call_id(int choice, int call) const {
  return fmt::format("{}{:x}{:x}", options_.call_id_prefix, choice, call);
}

json::Object ChatWriter::envelope(std::string_view object) const {
  return json::Object{{"id", options_.id},
                      {"object", object},
                      {"created", options_.created},
                      {"model", options_.model},
                      {"system_fingerprint", options_.fingerprint}};
}

void ChatWriter::put_reasoning(json::Object& message, std::string_view text) const {
  if (options_.reasoning_field != ReasoningField::kReasoningContent) message["reasoning"] = text;
  if (options_.reasoning_field != ReasoningField::kReasoning) message["reasoning_content"] = text;
}

json::Value ChatWriter::logprobs_value(const std::vector<LogprobEntry>& entries) const {
  if (!options_.logprobs) return nullptr;
  json::Array content;
  for (const LogprobEntry& entry : entries) content.push_back(logprob_object(entry, tokenizer_));
  return json::Object{{"content", std::move(content)}, {"refusal", nullptr}};
}

std::string ChatWriter::choice_chunk(int choice, json::Object delta, json::Value logprobs, json::Value finish_reason,
                                     json::Value stop_reason, const Usage* usage) const {
  json::Object entry{{"index", choice},
                     {"delta", std::move(delta)},
                     {"logprobs", std::move(logprobs)},
                     {"finish_reason", std::move(finish_reason)}};
  if (!stop_reason.is_null()) entry["stop_reason"] = std::move(stop_reason);
  json::Object chunk = envelope("chat.completion.chunk");
  chunk["choices"] = json::Array{std::move(entry)};
  if (usage != nullptr) {
    chunk["usage"] = usage_object(*usage);
  } else if (options_.include_usage) {
    chunk["usage"] = nullptr;
  }
  return event_of(chunk);
}

std::string ChatWriter::role_chunk(int choice, const Usage* usage) const {
  return choice_chunk(choice, json::Object{{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, nullptr, usage);
}

std::string ChatWriter::chunk(int choice, const Piece& piece, const Usage* usage) const {
  json::Object delta;
  json::Value logprobs = nullptr;
  switch (piece.kind) {
    case PieceKind::kReasoning:
      put_reasoning(delta, piece.text);
      break;
    case PieceKind::kContent:
      delta["content"] = piece.text;
      logprobs = logprobs_value(piece.logprobs);
      break;
    case PieceKind::kCallBegin:
      delta["tool_calls"] =
          json::Array{json::Object{{"index", piece.call},
                                   {"id", call_id(choice, piece.call)},
                                   {"type", "function"},
                                   {"function", json::Object{{"name", piece.name}, {"arguments", ""}}}}};
      break;
    case PieceKind::kCallArguments:
      delta["tool_calls"] =
          json::Array{json::Object{{"index", piece.call}, {"function", json::Object{{"arguments", piece.text}}}}};
      break;
  }
  return choice_chunk(choice, std::move(delta), std::move(logprobs), nullptr, nullptr, usage);
}

std::string ChatWriter::finish_chunk(int choice, std::string_view finish_reason, const json::Value& stop_reason,
                                     const Usage* usage) const {
  return choice_chunk(choice, json::Object{}, nullptr, json::Value(finish_reason), stop_reason, usage);
}

std::string ChatWriter::usage_chunk(const Usage& usage) const {
  json::Object chunk = envelope("chat.completion.chunk");
  chunk["choices"] = json::Array{};
  chunk["usage"] = usage_object(usage);
  return event_of(chunk);
}

std::string ChatWriter::whole(const std::vector<ChatAnswer>& answers, const Usage& usage) const {
  json::Array choices;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const ChatAnswer& answer = answers[i];
    json::Object message{{"role", "assistant"}};
    message["content"] = answer.content.empty() ? json::Value(nullptr) : json::Value(answer.content);
    if (!answer.reasoning.empty()) put_reasoning(message, answer.reasoning);
    message["refusal"] = nullptr;
    if (!answer.calls.empty()) {  // an empty array makes some clients loop
      json::Array calls;
      for (std::size_t k = 0; k < answer.calls.size(); ++k) {
        const ToolCall& call = answer.calls[k];
        calls.push_back(json::Object{{"id", call_id(static_cast<int>(i), static_cast<int>(k))},
                                     {"type", "function"},
                                     {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
      }
      message["tool_calls"] = std::move(calls);
    }
    json::Object choice{{"index", i},
                        {"message", std::move(message)},
                        {"logprobs", logprobs_value(answer.logprobs)},
                        {"finish_reason", answer.finish_reason}};
    if (!answer.stop_reason.is_null()) choice["stop_reason"] = answer.stop_reason;
    choices.push_back(std::move(choice));
  }
  json::Object out = envelope("chat.completion");
  out["choices"] = std::move(choices);
  out["usage"] = usage_object(usage);
  out["service_tier"] = nullptr;
  return json::serialize(out);
}

}  // namespace rose::openai
