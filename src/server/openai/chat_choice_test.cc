#include "server/openai/chat_choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/openai/chat_writer.h"
#include "server/openai/header_mask.h"
#include "server/testing/fake_chat.h"
#include "tokenizer/utf8.h"

namespace rose::openai {
namespace {

using namespace rose::testing;

const FakeTokenizer kTokenizer;

TokenEvent token(TokenId id, bool with_logprobs = false) {
  TokenEvent event{.choice = 0, .token = id, .logprob = 0, .top_logprobs = {}, .finish = {}, .error = ""};
  if (with_logprobs) event.logprob = -static_cast<float>(id), event.top_logprobs = {{id, event.logprob}, {65, -1.0f}};
  return event;
}

struct Played {
  std::vector<Piece> pieces;
  ChatAnswer answer;
};

// Plays ids; the last event carries `finish`. Pieces are collected in batches of `batch` ids.
Played play(const std::vector<TokenId>& ids, FinishReason finish, const ChatRequest& request, std::size_t batch = 1) {
  ChatChoice choice(std::make_unique<FakeParser>(), request, kTokenizer);
  Played run;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TokenEvent event = token(ids[i], request.sampling.decoding.top_logprobs >= 0);
    if (i + 1 == ids.size()) event.finish = finish;
    choice.feed(event, pieces);
    if ((i + 1) % batch == 0 || i + 1 == ids.size()) {
      for (Piece& piece : pieces) {
        run.pieces.push_back(piece);
        run.answer.add({std::move(piece)});
      }
      pieces.clear();
    }
  }
  EXPECT_TRUE(choice.done());
  run.answer.finish_reason = choice.finish_reason();
  run.answer.stop_reason = choice.stop_reason();
  return run;
}

ChatRequest request_with_stops(std::vector<std::string> stops) {
  ChatRequest request;
  request.sampling.stop = std::move(stops);
  return request;
}

TEST(ChatChoice, StopStringsMatchVisibleTextOnly) {
  const ChatRequest request = request_with_stops({"</run>"});
  for (const std::size_t batch : {1, 2, 3, 7, 100}) {
    const Played run = play(ids_of("I will emit </run> later", "do it</run>tail"), FinishReason::kStop, request, batch);
    EXPECT_EQ(run.answer.reasoning, "I will emit </run> later");
    EXPECT_EQ(run.answer.content, "do it");
    EXPECT_EQ(run.answer.finish_reason, "stop");
    EXPECT_EQ(run.answer.stop_reason, json::Value("</run>"));
    std::string streamed;
    for (const Piece& piece : run.pieces) streamed += piece.kind == PieceKind::kContent ? piece.text : "";
    EXPECT_EQ(streamed, "do it");
  }
}

TEST(ChatChoice, ArgumentsAreNotSearchedForStopStrings) {
  const Played run = play(ids_of_call("f", R"({"x":"</run>"})"), FinishReason::kStop, request_with_stops({"</run>"}));
  ASSERT_EQ(run.answer.calls.size(), 1u);
  EXPECT_EQ(run.answer.calls[0].arguments, R"({"x":"</run>"})");
  EXPECT_EQ(run.answer.finish_reason, "tool_calls");
}

TEST(ChatChoice, HeldBackTextIsShownWhenTheAnswerEnds) {
  EXPECT_EQ(play(ids_of("", "almost </ru"), FinishReason::kStop, request_with_stops({"</run>"})).answer.content,
            "almost </ru");
  std::vector<TokenId> cut = ids_of("", "almost </ru");
  cut.pop_back();
  const Played run = play(cut, FinishReason::kLength, request_with_stops({"</run>"}));
  EXPECT_EQ(run.answer.content, "almost </ru");
  EXPECT_EQ(run.answer.finish_reason, "length");
}

TEST(ChatChoice, FinishReasonsFollowWhatHappened) {
  EXPECT_EQ(play(ids_of("", "a"), FinishReason::kStop, {}).answer.finish_reason, "stop");
  EXPECT_EQ(play(ids_of_call("f", "{}"), FinishReason::kStop, {}).answer.finish_reason, "tool_calls");
  std::vector<TokenId> cut = ids_of_call("f", R"({"x":"a)");
  cut.pop_back();
  const Played run = play(cut, FinishReason::kLength, {});
  EXPECT_EQ(run.answer.finish_reason, "length") << "a call cut by the limit is no complete call";
  ASSERT_EQ(run.answer.calls.size(), 1u);
  EXPECT_EQ(run.answer.calls[0].arguments, R"({"x":"a)");
}

TEST(ChatChoice, TheCallersOwnStopIdIsReported) {
  ChatRequest request;
  request.sampling.decoding.stop_tokens = {'!'};
  EXPECT_EQ(play({kFinal, 'a', '!'}, FinishReason::kStop, request).answer.stop_reason, json::Value('!' + 0));
  EXPECT_TRUE(play({kFinal, 'a', kReturn}, FinishReason::kStop, request).answer.stop_reason.is_null());
}

TEST(ChatChoice, SpeakingForSomebodyElseEndsIt) {
  ChatChoice choice(std::make_unique<FakeParser>(), {}, kTokenizer);
  std::vector<Piece> pieces;
  choice.feed(token(kFinal), pieces);
  choice.feed(token('a'), pieces);
  choice.feed(token(kForeign), pieces);
  EXPECT_TRUE(choice.done());
  EXPECT_EQ(choice.finish_reason(), "stop");
  const int tokens = choice.tokens();
  choice.feed(token('b'), pieces);
  EXPECT_EQ(choice.tokens(), tokens) << "what comes after the end is not counted";
}

TEST(ChatChoice, ReasoningIsLeftOutIfUnwanted) {
  ChatRequest request;
  request.include_reasoning = false;
  const Played run = play(ids_of("why", "because"), FinishReason::kStop, request);
  EXPECT_EQ(run.answer.reasoning, "");
  EXPECT_EQ(run.answer.content, "because");
}

std::string bytes_of(const std::vector<LogprobEntry>& entries) {
  std::string bytes;
  for (const LogprobEntry& entry : entries) bytes += kTokenizer.decode(entry.token);
  return bytes;
}

TEST(ChatChoice, LogprobsCoverTheVisibleTextExactly) {
  ChatRequest request = request_with_stops({"STOP"});
  request.sampling.decoding.top_logprobs = 2;
  // Split characters, held-back text and a stop string on the way.
  for (const char* const text : {"plain", "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad\xf0\x9f\x8c\xb9", "ST ok STO",
                                 "beforeSTOPafter", "\xf0\x9f\x8c\xb9STOP"}) {
    const std::string content = text;
    for (const std::size_t batch : {1, 3, 100}) {
      const Played run = play(ids_of("thinking STOP", content), FinishReason::kStop, request, batch);
      EXPECT_EQ(bytes_of(run.answer.logprobs), run.answer.content);
      for (const LogprobEntry& entry : run.answer.logprobs) {
        EXPECT_EQ(entry.logprob, -static_cast<float>(entry.token)) << "its own, not a neighbour's";
        EXPECT_EQ(entry.top.size(), 2u);
      }
    }
  }
}

TEST(ChatChoice, NoPieceEverHoldsPartOfACharacter) {
  const std::string content = "\xe4\xb8\xad\xf0\x9f\x8c\xb9\xc3\xbc";
  const Played run =
      play(ids_of("", content), FinishReason::kStop, request_with_stops({"\xe4\xb8\xad\xf0\x9f\x8c\xb9!"}));
  for (const Piece& piece : run.pieces) EXPECT_EQ(valid_utf8(piece.text), piece.text);
  EXPECT_EQ(run.answer.content, content);
}

ChatWriterOptions writer_options() {
  return {.id = "chatcmpl-1",
          .model = "m",
          .fingerprint = "fp",
          .created = 7,
          .reasoning_field = ReasoningField::kReasoning,
          .logprobs = false,
          .include_usage = false,
          .call_id_prefix = "call_x"};
}

json::Value chunk_of(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  const auto value = json::parse(std::string_view(event).substr(6, event.size() - 8));
  CHECK(value.ok(), "{}", event);
  return *value;
}

TEST(ChatWriter, EveryChunkHasTheSameEnvelope) {
  const ChatWriter writer(writer_options(), kTokenizer);
  const Piece content{.kind = PieceKind::kContent, .text = "hi"};
  for (const std::string& event : {writer.role_chunk(0, nullptr), writer.chunk(0, content, nullptr),
                                   writer.finish_chunk(0, "stop", nullptr, nullptr), writer.usage_chunk({})}) {
    const json::Value chunk = chunk_of(event);
    EXPECT_EQ(chunk.at("id"), "chatcmpl-1");
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    EXPECT_EQ(chunk.at("created"), 7);
    EXPECT_EQ(chunk.at("model"), "m");
    EXPECT_FALSE(chunk.as_object().contains("error"));
  }
}

TEST(ChatWriter, RoleComesOnceAndFinishReasonLast) {
  const ChatWriter writer(writer_options(), kTokenizer);
  const json::Value first = chunk_of(writer.role_chunk(1, nullptr));
  EXPECT_EQ(json::serialize(first.at_pointer("/choices/0/delta")), R"({"role":"assistant","content":""})");
  EXPECT_EQ(first.at_pointer("/choices/0/index"), 1);
  EXPECT_TRUE(first.at_pointer("/choices/0/finish_reason").is_null());
  const json::Value middle = chunk_of(writer.chunk(1, {.kind = PieceKind::kContent, .text = "hi"}, nullptr));
  EXPECT_EQ(json::serialize(middle.at_pointer("/choices/0/delta")), R"({"content":"hi"})");
  EXPECT_TRUE(middle.at_pointer("/choices/0/finish_reason").is_null());
  const json::Value last = chunk_of(writer.finish_chunk(1, "length", nullptr, nullptr));
  EXPECT_EQ(json::serialize(last.at_pointer("/choices/0/delta")), "{}");
  EXPECT_EQ(last.at_pointer("/choices/0/finish_reason"), "length");
}

TEST(ChatWriter, ReasoningGoesIntoTheChosenField) {
  const Piece piece{.kind = PieceKind::kReasoning, .text = "why"};
  for (const auto& [field, expected] :
       {std::pair{ReasoningField::kReasoning, R"({"reasoning":"why"})"},
        std::pair{ReasoningField::kReasoningContent, R"({"reasoning_content":"why"})"},
        std::pair{ReasoningField::kBoth, R"({"reasoning":"why","reasoning_content":"why"})"}}) {
    ChatWriterOptions options = writer_options();
    options.reasoning_field = field;
    const json::Value chunk = chunk_of(ChatWriter(options, kTokenizer).chunk(0, piece, nullptr));
    EXPECT_EQ(json::serialize(chunk.at_pointer("/choices/0/delta")), expected);
  }
}

TEST(ChatWriter, ACallIsNamedOnceAndThenOnlyGrows) {
  const ChatWriter writer(writer_options(), kTokenizer);
  const json::Value begin = chunk_of(writer.chunk(0, {.kind = PieceKind::kCallBegin, .call = 0, .name = "f"}, nullptr));
  EXPECT_EQ(json::serialize(begin.at_pointer("/choices/0/delta/tool_calls")),
            R"([{"index":0,"id":"call_x00","type":"function","function":{"name":"f","arguments":""}}])");
  const json::Value more =
      chunk_of(writer.chunk(0, {.kind = PieceKind::kCallArguments, .text = "{}", .call = 0}, nullptr));
  EXPECT_EQ(json::serialize(more.at_pointer("/choices/0/delta/tool_calls")),
            R"([{"index":0,"function":{"arguments":"{}"}}])");
}

TEST(ChatWriter, UsageIsNullUntilTheLastChunkOrInAllOfThem) {
  ChatWriterOptions options = writer_options();
  EXPECT_FALSE(chunk_of(ChatWriter(options, kTokenizer).role_chunk(0, nullptr)).as_object().contains("usage"));
  options.include_usage = true;
  const ChatWriter writer(options, kTokenizer);
  EXPECT_TRUE(chunk_of(writer.role_chunk(0, nullptr)).at("usage").is_null());
  const Usage usage{.prompt_tokens = 5, .completion_tokens = 3, .cached_tokens = 2, .reasoning_tokens = 1};
  const json::Value last = chunk_of(writer.usage_chunk(usage));
  EXPECT_EQ(json::serialize(last.at("choices")), "[]");
  EXPECT_EQ(json::serialize(last.at("usage")),
            R"({"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2},)"
            R"("completion_tokens_details":{"reasoning_tokens":1}})");
  EXPECT_EQ(chunk_of(writer.role_chunk(0, &usage)).at_pointer("/usage/total_tokens"), 8);
}

TEST(ChatWriter, WholeAnswersHaveNullContentAndNoEmptyCalls) {
  const ChatWriter writer(writer_options(), kTokenizer);
  ChatAnswer silent;
  silent.reasoning = "only this";
  silent.finish_reason = "stop";
  ChatAnswer calls;
  calls.calls = {{.id = "", .name = "f", .arguments = "{}"}, {.id = "", .name = "g", .arguments = ""}};
  calls.finish_reason = "tool_calls";
  const auto parsed = json::parse(writer.whole({silent, calls}, {}));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->at("object"), "chat.completion");
  const json::Value& first = parsed->at_pointer("/choices/0");
  EXPECT_TRUE(first.at_pointer("/message/content").is_null());
  EXPECT_TRUE(first.at_pointer("/message/refusal").is_null());
  EXPECT_EQ(first.at_pointer("/message/reasoning"), "only this");
  EXPECT_FALSE(first.at("message").as_object().contains("tool_calls"));
  EXPECT_TRUE(first.at("logprobs").is_null());
  const json::Value& second = parsed->at_pointer("/choices/1");
  EXPECT_EQ(second.at_pointer("/message/tool_calls").as_array().size(), 2u);
  EXPECT_NE(second.at_pointer("/message/tool_calls/0/id"), second.at_pointer("/message/tool_calls/1/id"));
  EXPECT_EQ(second.at("finish_reason"), "tool_calls");
}

TEST(ChatWriter, LogprobsHaveExactBytesAndNoInfinity) {
  ChatWriterOptions options = writer_options();
  options.logprobs = true;
  Piece piece{.kind = PieceKind::kContent, .text = "x"};
  piece.logprobs = {{0xe4, -INFINITY, {{'a', -1.5f}}}};
  const json::Value chunk = chunk_of(ChatWriter(options, kTokenizer).chunk(0, piece, nullptr));
  const json::Value& entry = chunk.at_pointer("/choices/0/logprobs/content/0");
  EXPECT_EQ(entry.at("token"), "\xef\xbf\xbd");
  EXPECT_EQ(json::serialize(entry.at("bytes")), "[228]");
  EXPECT_EQ(entry.at("logprob").to_number<double>(), -9999.0);
  EXPECT_EQ(entry.at_pointer("/top_logprobs/0/token"), "a");
  EXPECT_EQ(entry.at_pointer("/top_logprobs/0/logprob").to_number<double>(), -1.5);
}

TEST(HeaderMask, ForcesTheHeaderAndThenLetsGo) {
  HeaderMask mask(std::make_shared<FakeConstraint>(std::vector<TokenId>{kTool, 'f'}));
  std::vector<std::int32_t> bits((kVocabulary + 31) / 32, -1);
  for (const TokenId expected : {kTool, TokenId{'f'}}) {
    ASSERT_TRUE(mask.mask(bits));
    for (int id = 0; id < kVocabulary; ++id) {
      const bool allowed = (static_cast<std::uint32_t>(bits[static_cast<std::size_t>(id / 32)]) >> (id % 32) & 1) != 0;
      EXPECT_EQ(allowed, id == expected) << id;
    }
    mask.advance(expected);
  }
  EXPECT_FALSE(mask.mask(bits));
  mask.advance('x');
  EXPECT_FALSE(mask.mask(bits));
}

}  // namespace
}  // namespace rose::openai
