#include "server/openai/completions.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "server/openai/errors.h"
#include "server/openai/fields.h"
#include "server/openai/generation.h"
#include "server/openai/sampling_request.h"
#include "tokenizer/utf8.h"

namespace rose::openai {
namespace {

constexpr int kMaxTokensDefault = 16;  // OpenAI's

std::optional<std::vector<TokenId>> token_ids(const json::Array& array, const ApiLimits& limits) {
  std::vector<TokenId> ids;
  for (const json::Value& entry : array) {
    const std::int64_t* id = entry.if_int64();
    if (id == nullptr || *id < 0 || *id >= limits.vocabulary) return std::nullopt;
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

void read_prompt(Fields& fields, const ApiLimits& limits, CompletionRequest& out) {
  const json::Value* prompt = fields.value("prompt");
  if (prompt == nullptr) return fields.missing("prompt");
  // A list of one prompt is that prompt.
  if (prompt->is_array() && prompt->get_array().size() == 1 && !prompt->get_array()[0].is_int64()) {
    prompt = &prompt->get_array()[0];
  }
  if (prompt->is_string()) {
    out.prompt = std::string(prompt->get_string());
    return;
  }
  if (!prompt->is_array()) return fields.wrong_type("prompt", "a string or an array of token ids", *prompt);
  if (!prompt->get_array().empty() && !prompt->get_array()[0].is_number()) {
    return fields.fail("prompt", "Several prompts in one request are not supported; send one request for each.",
                       "unsupported_value");
  }
  auto ids = token_ids(prompt->get_array(), limits);
  if (!ids) {
    return fields.fail("prompt", fmt::format("Invalid 'prompt': expected token ids below {}.", limits.vocabulary));
  }
  out.prompt = std::move(*ids);
}

// The text of one choice, token by token.
class TextChoice {
 public:
  TextChoice(const CompletionRequest& request, const Tokenizer& tokenizer, std::string echo)
      : tokenizer_(tokenizer),
        stops_(request.sampling.stop, request.sampling.include_stop),
        logprobs_(request.sampling.decoding.top_logprobs >= 0),
        skip_special_(request.skip_special_tokens),
        echo_(std::move(echo)) {}

  void feed(const TokenEvent& event, std::string& out) {
    if (done()) return;
    out += std::exchange(echo_, {});
    if (event.token >= 0) {
      ++tokens_;
      const bool ends = event.finish == FinishReason::kStop;  // the stop token itself is no text
      std::string text;
      if (!ends && !(skip_special_ && tokenizer_.is_special(event.token))) {
        const std::size_t begin = text_bytes_;
        utf8_.feed(tokenizer_.decode(event.token), text);
        text_bytes_ += text.size();
        if (logprobs_) entries_.push_back({begin, {event.token, event.logprob, event.top_logprobs}});
      }
      stops_.feed(text, out);
    }
    if (event.finish && !stops_.matched()) {
      std::string rest;
      utf8_.flush(rest);
      stops_.feed(rest, out);
      stops_.flush(out);
    }
    if (stops_.matched()) {
      finish_ = "stop";
    } else if (event.finish) {
      finish_ = event.finish == FinishReason::kStop ? "stop" : "length";
    }
  }

  bool done() const { return !finish_.empty(); }
  const std::string& finish_reason() const { return finish_; }
  int tokens() const { return tokens_; }

  // {tokens, token_logprobs, top_logprobs, text_offset} of what came since the last call.
  json::Value take_logprobs() {
    if (!logprobs_) return nullptr;
    json::Array tokens, own, top, offsets;
    for (const auto& [offset, entry] : entries_) {
      tokens.emplace_back(valid_utf8(tokenizer_.decode(entry.token)));
      own.emplace_back(logprob_value(entry.logprob));
      json::Object others;
      for (const TokenLogprob& t : entry.top) others[valid_utf8(tokenizer_.decode(t.token))] = logprob_value(t.logprob);
      top.emplace_back(std::move(others));
      offsets.emplace_back(offset);
    }
    entries_.clear();
    return json::Object{{"tokens", std::move(tokens)},
                        {"token_logprobs", std::move(own)},
                        {"top_logprobs", std::move(top)},
                        {"text_offset", std::move(offsets)}};
  }

 private:
  const Tokenizer& tokenizer_;
  StopMatcher stops_;
  Utf8Stream utf8_;
  bool logprobs_;
  bool skip_special_;
  std::string echo_;
  std::size_t text_bytes_ = 0;
  std::vector<std::pair<std::size_t, LogprobEntry>> entries_;
  int tokens_ = 0;
  std::string finish_;
};

class CompletionGeneration final : public Generation {
 public:
  CompletionGeneration(GenerationSetup setup, const CompletionRequest& request, std::string id, std::string echo)
      : Generation(std::move(setup), request.sampling),
        id_(std::move(id)),
        model_name_(request.sampling.model),
        include_usage_(request.sampling.include_usage),
        continuous_usage_(request.sampling.continuous_usage) {
    for (int i = 0; i < request.sampling.n; ++i) choices_.push_back({TextChoice(request, *model().tokenizer, echo)});
  }

 private:
  struct Choice {
    TextChoice text;
    std::string out = {};
    bool finish_sent = false;
  };

  void begin() override {
    if (streams()) reply().begin_events({});
  }
  void take(const TokenEvent& event) override {
    Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
    choice.text.feed(event, choice.out);
  }

  void flush() override {
    if (!streams()) return;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      const bool last = choice.text.done() && !choice.finish_sent;
      if (choice.out.empty() && !last) continue;
      choice.finish_sent = choice.text.done();
      json::Object chunk = envelope();
      chunk["choices"] = json::Array{choice_object(i, last)};
      if (continuous_usage_) {
        chunk["usage"] = usage_object(usage());
      } else if (include_usage_) {
        chunk["usage"] = nullptr;
      }
      reply().write_event(event_of(chunk));
    }
  }

  bool complete() const override {
    for (const Choice& choice : choices_) {
      if (!choice.text.done()) return false;
    }
    return true;
  }

  void finish() override {
    json::Object last = envelope();
    if (streams()) {
      if (include_usage_) {
        last["choices"] = json::Array{};
        last["usage"] = usage_object(usage());
        reply().write_event(event_of(last));
      }
      reply().write_event(std::string(kDoneEvent));
      return reply().end_events();
    }
    json::Array choices;
    for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_object(i, true));
    last["choices"] = std::move(choices);
    last["usage"] = usage_object(usage());
    reply().send({.status = 200, .body = json::serialize(last)});
  }

  RequestSummary::End how_it_ended() const override {
    return choices_.front().text.finish_reason() == "length" ? RequestSummary::End::kLength
                                                             : RequestSummary::End::kStop;
  }
  int tokens_of(int choice) const override { return choices_[static_cast<std::size_t>(choice)].text.tokens(); }

  json::Object envelope() const {
    return json::Object{{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_name_}};
  }
  json::Object choice_object(std::size_t i, bool last) {
    Choice& choice = choices_[i];
    json::Object out{{"index", i}, {"text", std::exchange(choice.out, {})}, {"logprobs", choice.text.take_logprobs()}};
    out["finish_reason"] = last ? json::Value(choice.text.finish_reason()) : json::Value(nullptr);
    return out;
  }

  const std::string id_;
  const std::string model_name_;
  const bool include_usage_;
  const bool continuous_usage_;
  const std::int64_t created_ = unix_now();
  std::vector<Choice> choices_;
};

}  // namespace

Result<CompletionRequest> parse_completion_request(const json::Value& body, const ApiLimits& limits) {
  if (!body.is_object()) return RequestError{400, "The request body must be a JSON object.", "", ""};
  Fields fields(body.get_object());
  CompletionRequest out;
  read_sampling(fields, limits, out.sampling);
  read_prompt(fields, limits, out);
  if (const auto top = fields.integer("logprobs", 0, 5)) out.sampling.decoding.top_logprobs = static_cast<int>(*top);
  if (out.sampling.decoding.max_tokens == 0) out.sampling.decoding.max_tokens = kMaxTokensDefault;
  out.echo = fields.boolean("echo").value_or(false);
  out.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  const auto best_of = fields.integer("best_of", 1, limits.n_max);
  if (best_of.value_or(1) > out.sampling.n)
    fields.fail("best_of", "Unsupported parameter: 'best_of'.", "unsupported_parameter");
  if (!fields.text("suffix").value_or("").empty()) {
    fields.fail("suffix", "Unsupported parameter: 'suffix'.", "unsupported_parameter");
  }
  if (out.echo && out.sampling.decoding.top_logprobs >= 0) {
    fields.fail("echo", "Log-probabilities of the prompt are not supported: 'echo' excludes 'logprobs'.",
                "unsupported_value");
  }
  if (!fields.ok()) return fields.error();
  return out;
}

void completions(Service& service, http::Request request, std::shared_ptr<http::Reply> reply) {
  const auto model = service.model();
  const Result<json::Value> body = json::parse(request.body);
  if (!body) return reply->send(error_response(body.error()));
  ApiLimits limits = service.options().limits;
  limits.vocabulary = model->engine->limits().vocabulary;
  Result<CompletionRequest> parsed = parse_completion_request(*body, limits);
  if (!parsed) return reply->send(error_response(parsed.error()));
  if (!service.serves(parsed->sampling.model)) {
    return reply->send(error_response(service.unknown_model(parsed->sampling.model)));
  }

  std::vector<TokenId> ids;
  if (const std::string* text = std::get_if<std::string>(&parsed->prompt)) {
    const int context_max = model->engine->limits().context_max;
    const auto least = static_cast<std::int64_t>(text->size()) / std::max(1, model->tokenizer->token_bytes_max());
    if (least >= context_max) return reply->send(error_response(context_error(context_max, least, "prompt")));
    ids = model->tokenizer->encode(*text);
  } else {
    ids = std::get<std::vector<TokenId>>(parsed->prompt);
  }
  if (ids.empty()) {
    return reply->send(error_response({400, "Invalid 'prompt': it is empty.", "prompt", "invalid_value"}));
  }
  const std::string echo = parsed->echo ? valid_utf8(model->tokenizer->decode_all(ids)) : std::string();
  Result<Request> engine = make_request(service, *model, parsed->sampling, std::move(ids), "prompt");
  if (!engine) return reply->send(error_response(engine.error()));
  std::vector<std::int32_t>& stops = engine->decoding.stop_tokens;
  stops.insert(stops.end(), model->chat_format->stop_tokens().begin(), model->chat_format->stop_tokens().end());

  GenerationSetup setup{.model = model, .reply = reply, .service = &service, .arrived = request.arrived};
  std::string id = service.unique("cmpl-", engine->id);
  const auto generation = std::make_shared<CompletionGeneration>(std::move(setup), *parsed, std::move(id), echo);
  generation->run(std::move(*engine));
}

}  // namespace rose::openai
