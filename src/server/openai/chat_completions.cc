#include "server/openai/chat_completions.h"

#include <utility>

#include "server/openai/chat_choice.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"
#include "server/openai/header_mask.h"

namespace rose::openai {
namespace {

class ChatGeneration final : public Generation {
 public:
  ChatGeneration(GenerationSetup setup, const ChatRequest& request, ChatWriterOptions options)
      : Generation(std::move(setup), request.sampling),
        continuous_usage_(request.sampling.continuous_usage),
        include_usage_(request.sampling.include_usage),
        writer_(std::move(options), *model().tokenizer) {
    for (int i = 0; i < request.sampling.n; ++i) {
      choices_.push_back(
          {.choice = ChatChoice(model().chat_format->parser(request.conversation), request, *model().tokenizer)});
    }
  }

 private:
  struct Choice {
    ChatChoice choice;
    std::vector<Piece> fresh = {};
    ChatAnswer answer = {};
    bool finish_sent = false;
  };

  void begin() override {
    if (!streams()) return;
    reply().begin_events({});
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      reply().write_event(writer_.role_chunk(static_cast<int>(i), running_usage().get()));
    }
  }

  void take(const TokenEvent& event) override {
    Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
    choice.choice.feed(event, choice.fresh);
  }

  void flush() override {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      std::vector<Piece> fresh = std::exchange(choice.fresh, {});
      if (!streams()) {
        choice.answer.add(std::move(fresh));
        continue;
      }
      const std::unique_ptr<Usage> usage = running_usage();
      std::string out;
      for (const Piece& piece : fresh) out += writer_.chunk(static_cast<int>(i), piece, usage.get());
      if (choice.choice.done() && !std::exchange(choice.finish_sent, choice.choice.done())) {
        out += writer_.finish_chunk(static_cast<int>(i), choice.choice.finish_reason(), choice.choice.stop_reason(),
                                    usage.get());
      }
      reply().write_event(std::move(out));
    }
  }

  bool complete() const override {
    for (const Choice& choice : choices_) {
      if (!choice.choice.done()) return false;
    }
    return true;
  }

  void finish() override {
    if (streams()) {
      std::string out;
      if (include_usage_) out += writer_.usage_chunk(full_usage());
      out += kDoneEvent;
      reply().write_event(std::move(out));
      return reply().end_events();
    }
    std::vector<ChatAnswer> answers;
    for (Choice& choice : choices_) {
      choice.answer.finish_reason = choice.choice.finish_reason();
      choice.answer.stop_reason = choice.choice.stop_reason();
      answers.push_back(std::move(choice.answer));
    }
    reply().send({.status = 200, .body = writer_.whole(answers, full_usage())});
  }

  RequestSummary::End how_it_ended() const override {
    const bool cut = choices_.front().choice.finish_reason() == "length";
    return cut ? RequestSummary::End::kLength : RequestSummary::End::kStop;
  }

  int tokens_of(int choice) const override { return choices_[static_cast<std::size_t>(choice)].choice.tokens(); }

  Usage full_usage() const {
    Usage usage = this->usage();
    for (const Choice& choice : choices_) usage.reasoning_tokens += choice.choice.reasoning_tokens();
    return usage;
  }

  std::unique_ptr<Usage> running_usage() const {
    return continuous_usage_ ? std::make_unique<Usage>(full_usage()) : nullptr;
  }

  const bool continuous_usage_;
  const bool include_usage_;
  ChatWriter writer_;
  std::vector<Choice> choices_;
};

// A lower bound on the prompt's tokens that costs nothing: a text that cannot fit is refused before it is tokenized.
std::int64_t tokens_at_least(const Conversation& conversation, const Tokenizer& tokenizer) {
  std::size_t bytes = 0;
  for (const ChatMessage& message : conversation.messages) bytes += message.content.size();
  return static_cast<std::int64_t>(bytes) / std::max(1, tokenizer.token_bytes_max());
}

Result<Request> engine_request(Service& service, const ServedModel& model, const ChatRequest& chat) {
  const std::int64_t least = tokens_at_least(chat.conversation, *model.tokenizer);
  const int context_max = model.engine->limits().context_max;
  if (least >= context_max) return context_error(context_max, least, "messages");
  Result<std::vector<TokenId>> prompt = model.chat_format->render(chat.conversation);
  if (!prompt) return prompt.error();
  Result<Request> request = make_request(service, model, chat.sampling, std::move(*prompt), "messages");
  if (!request) return request;
  std::vector<std::int32_t>& stops = request->decoding.stop_tokens;
  stops.insert(stops.end(), model.chat_format->stop_tokens().begin(), model.chat_format->stop_tokens().end());
  if (const auto constraint = model.chat_format->constraint(chat.conversation)) {
    for (int i = 0; i < chat.sampling.n; ++i) request->masks.push_back(std::make_shared<HeaderMask>(constraint));
  }
  return request;
}

}  // namespace

void chat_completions(Service& service, http::Request request, std::shared_ptr<http::Reply> reply) {
  const std::shared_ptr<const ServedModel> model = service.model();
  CHECK(model != nullptr, "routed before the model was there");
  const Result<json::Value> body = json::parse(request.body, {.bytes_max = request.body.size() + 1});
  if (!body) return reply->send(error_response(body.error()));
  ApiLimits limits = service.options().limits;
  limits.vocabulary = model->engine->limits().vocabulary;
  Result<ChatRequest> chat = parse_chat_request(*body, limits);
  if (!chat) return reply->send(error_response(chat.error()));
  if (!service.serves(chat->sampling.model)) {
    return reply->send(error_response(service.unknown_model(chat->sampling.model)));
  }
  chat->conversation.date = today_utc();
  Result<Request> engine = engine_request(service, *model, *chat);
  if (!engine) return reply->send(error_response(engine.error()));

  ChatWriterOptions options{.id = service.unique("chatcmpl-", engine->id),
                            .model = chat->sampling.model,
                            .fingerprint = "rose-" + service.options().version,
                            .created = unix_now(),
                            .reasoning_field = service.options().reasoning_field,
                            .logprobs = chat->sampling.decoding.top_logprobs >= 0,
                            .include_usage = chat->sampling.include_usage || chat->sampling.continuous_usage,
                            .call_id_prefix = service.unique("call_", engine->id)};
  GenerationSetup setup{.model = model, .reply = reply, .service = &service, .arrived = request.arrived};
  const auto generation = std::make_shared<ChatGeneration>(std::move(setup), *chat, std::move(options));
  generation->run(std::move(*engine));
}

}  // namespace rose::openai
