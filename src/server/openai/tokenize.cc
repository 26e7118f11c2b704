#include "server/openai/tokenize.h"

#include <fmt/format.h>

#include "server/openai/errors.h"
#include "server/openai/fields.h"
#include "tokenizer/utf8.h"

namespace rose::openai {
namespace {

// {messages, tools, ...}: read as the chat endpoint reads them, rendered by the same renderer.
Result<std::vector<TokenId>> ids_of_messages(const json::Object& object, Service& service, const ServedModel& model) {
  ApiLimits limits = service.options().limits;
  limits.vocabulary = model.engine->limits().vocabulary;
  json::Object body = object;
  if (!body.contains("model")) body["model"] = service.options().model_names.front();
  Result<ChatRequest> chat = parse_chat_request(body, limits);
  if (!chat) return chat.error();
  chat->conversation.date = today_utc();
  return model.chat_format->render(chat->conversation);
}

Result<std::vector<TokenId>> ids_of(const json::Value& body, Service& service, const ServedModel& model) {
  if (!body.is_object()) return RequestError{400, "The request body must be a JSON object.", "", ""};
  const json::Object& object = body.get_object();
  Fields fields(object);
  if (fields.has("messages")) return ids_of_messages(object, service, model);
  const bool llama_shape = fields.has("content");
  const auto text = llama_shape ? fields.text("content") : fields.required_text("prompt");
  const bool specials = fields.boolean("parse_special").value_or(false);
  if (!fields.ok()) return fields.error();
  return specials ? model.tokenizer->encode_with_specials(*text) : model.tokenizer->encode(*text);
}

// vLLM: return_token_strs; llama.cpp: with_pieces.
bool flag(const json::Value& body, std::string_view name) {
  const json::Value* found = body.get_object().if_contains(name);
  return found != nullptr && found->is_bool() && found->get_bool();
}

}  // namespace

void tokenize(Service& service, http::Request request, std::shared_ptr<http::Reply> reply) {
  const auto model = service.model();
  const Result<json::Value> body = json::parse(request.body);
  if (!body) return reply->send(error_response(body.error()));
  const Result<std::vector<TokenId>> ids = ids_of(*body, service, *model);
  if (!ids) return reply->send(error_response(ids.error()));

  const bool pieces = flag(*body, "with_pieces");
  json::Array tokens, strings;
  for (const TokenId id : *ids) {
    const std::string text = valid_utf8(model->tokenizer->decode(id));
    tokens.push_back(pieces ? json::Value(json::Object{{"id", id}, {"piece", text}}) : json::Value(id));
    strings.emplace_back(text);
  }
  json::Object out{{"count", ids->size()}, {"max_model_len", model->engine->limits().context_max}};
  out["tokens"] = std::move(tokens);
  out["token_strs"] = flag(*body, "return_token_strs") ? json::Value(std::move(strings)) : json::Value(nullptr);
  reply->send({.body = json::serialize(out)});
}

void detokenize(Service& service, http::Request request, std::shared_ptr<http::Reply> reply) {
  const auto model = service.model();
  const Result<json::Value> body = json::parse(request.body);
  if (!body) return reply->send(error_response(body.error()));
  if (!body->is_object()) return reply->send(error_response({400, "The request body must be a JSON object.", "", ""}));
  Fields fields(body->get_object());
  const json::Array* tokens = fields.array("tokens");
  if (fields.ok() && tokens == nullptr) fields.missing("tokens");
  std::string bytes;
  const int vocabulary = model->engine->limits().vocabulary;
  for (std::size_t i = 0; fields.ok() && i < tokens->size(); ++i) {
    const std::int64_t* id = (*tokens)[i].if_int64();
    if (id == nullptr || *id < 0 || *id >= vocabulary) {
      fields.fail(fmt::format("tokens[{}]", i),
                  fmt::format("Invalid 'tokens[{}]': expected an id below {}.", i, vocabulary));
      break;
    }
    bytes += model->tokenizer->decode(static_cast<TokenId>(*id));
  }
  if (!fields.ok()) return reply->send(error_response(fields.error()));
  const std::string text = valid_utf8(bytes);
  reply->send({.body = json::serialize(json::Object{{"prompt", text}, {"content", text}})});
}

}  // namespace rose::openai
