#include "server/api_server.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/testing/fake_chat.h"
#include "server/testing/fake_engine.h"
#include "server/testing/raw_client.h"

namespace rose {
namespace {

using namespace rose::testing;

bool eventually(const std::function<bool()>& condition, double timeout_s = 5) {
  const auto until = Clock::now() + std::chrono::duration<double>(timeout_s);
  while (!condition() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return condition();
}

struct Answer {
  int status = 0;
  std::string head;
  std::string body;
  json::Value json() const {
    const auto value = json::parse(body);
    CHECK(value.ok(), "{}", body);
    return *value;
  }
};

class ApiServerTest : public ::testing::Test {
 protected:
  void start(bool loaded = true, FakeEngine::Script script = nullptr) {
    ApiServerOptions options;
    options.http.port = 0;
    options.service.model_names = {"m", "org/m"};
    options.service.version = "1.2.3";
    options.access_log = false;
    server_ = std::make_unique<ApiServer>(std::move(options));
    server_->start();
    if (!script) script = [](const Request&, int) { return ids_of("thinking", "Hello there"); };
    engine_ = std::make_shared<FakeEngine>(
        std::move(script),
        EngineLimits{.context_max = 200, .vocabulary = kVocabulary, .sequences_max = 8, .requests_waiting_max = 4},
        step_);
    if (loaded) attach();
  }
  void attach() { server_->attach({engine_, std::make_shared<FakeTokenizer>(), std::make_shared<FakeChatFormat>()}); }

  Answer ask(const std::string& raw) {
    RawClient client(server_->port());
    client.send(raw);
    const std::string response = client.response();
    const std::size_t head = response.find("\r\n\r\n");
    CHECK(head != std::string::npos, "no response: {}", client.got());
    return {std::stoi(response.substr(9, 3)), response.substr(0, head), response.substr(head + 4)};
  }
  static std::string chat_body(std::string_view more = "") {
    return R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])" +
           (more.empty() ? std::string() : ", " + std::string(more)) + "}";
  }
  Answer chat(std::string_view more = "") { return ask(post("/v1/chat/completions", chat_body(more))); }

  // The data of each event of a streamed answer, "[DONE]" included; chunk framing removed.
  std::vector<std::string> stream(const std::string& path, const std::string& body) {
    RawClient client(server_->port());
    client.send(post(path, body, "Connection: close\r\n"));
    EXPECT_TRUE(client.closed());
    const std::string& got = client.got();
    std::string text;
    for (std::size_t at = got.find("\r\n\r\n") + 4; at < got.size();) {
      const std::size_t line = got.find("\r\n", at);
      const std::size_t size = std::stoul(got.substr(at, line - at), nullptr, 16);
      text += got.substr(line + 2, size);
      at = line + 2 + size + 2;
      if (size == 0) break;
    }
    std::vector<std::string> events;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find("\n\n", at);
      const std::string event = text.substr(at, end - at);
      if (event.starts_with("data: ")) events.push_back(event.substr(6));
      at = end + 2;
    }
    return events;
  }

  std::chrono::microseconds step_{200};
  std::shared_ptr<FakeEngine> engine_;
  std::unique_ptr<ApiServer> server_;
};

TEST_F(ApiServerTest, AnswersWhileTheModelLoads) {
  start(false);
  server_->loading(0.43);
  const Answer busy = chat();
  EXPECT_EQ(busy.status, 503);
  EXPECT_NE(busy.head.find("retry-after: "), std::string::npos);
  EXPECT_EQ(busy.json().at_pointer("/error/code"), "model_loading");
  EXPECT_EQ(busy.json().at_pointer("/error/progress").to_number<double>(), 0.43);
  EXPECT_EQ(ask(get("/health/live")).status, 200);
  EXPECT_EQ(ask(get("/health/ready")).status, 503);
  EXPECT_EQ(ask(get("/health")).status, 503);
  EXPECT_EQ(ask(get("/health/startup")).status, 503);
  EXPECT_EQ(ask(get("/health/startup")).json().at("progress").to_number<double>(), 0.43);
  EXPECT_EQ(ask(get("/v1/models")).status, 200);
  EXPECT_EQ(ask(get("/metrics")).status, 200);
  attach();
  for (const char* path : {"/health", "/health/live", "/health/ready", "/health/startup", "/ping"}) {
    EXPECT_EQ(ask(get(path)).status, 200) << path;
  }
  EXPECT_EQ(chat().status, 200);
}

TEST_F(ApiServerTest, WholeAndStreamedAnswersAgree) {
  start();
  const Answer whole = chat();
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::Value answer = whole.json();
  EXPECT_EQ(answer.at_pointer("/choices/0/message/content"), "Hello there");
  EXPECT_EQ(answer.at_pointer("/choices/0/message/reasoning"), "thinking");
  EXPECT_EQ(answer.at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(answer.at_pointer("/usage/prompt_tokens"), 3);
  EXPECT_EQ(answer.at_pointer("/usage/completion_tokens"), 1 + 8 + 1 + 11 + 1);
  EXPECT_EQ(answer.at_pointer("/usage/completion_tokens_details/reasoning_tokens"), 9);
  EXPECT_EQ(answer.at_pointer("/usage/prompt_tokens_details/cached_tokens"), 3);

  const auto events =
      stream("/v1/chat/completions", chat_body(R"("stream": true, "stream_options": {"include_usage": true})"));
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string reasoning, content;
  std::vector<std::string> finishes;
  std::set<std::string> ids;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json::Value chunk = *json::parse(events[i]);
    ids.insert(std::string(chunk.at("id").get_string()));
    const bool last = i + 2 == events.size();
    EXPECT_EQ(chunk.at("usage").is_null(), !last);
    if (last) {
      EXPECT_EQ(json::serialize(chunk.at("usage")), json::serialize(answer.at("usage")));
      EXPECT_TRUE(chunk.at("choices").as_array().empty());
      continue;
    }
    const json::Object& delta = chunk.at_pointer("/choices/0/delta").as_object();
    EXPECT_EQ(delta.contains("role"), i == 0);
    if (const auto* text = delta.if_contains("reasoning")) reasoning += std::string_view(text->get_string());
    if (const auto* text = delta.if_contains("content")) content += std::string_view(text->get_string());
    const json::Value& finish = chunk.at_pointer("/choices/0/finish_reason");
    if (!finish.is_null()) finishes.emplace_back(finish.get_string());
  }
  EXPECT_EQ(reasoning, "thinking");
  EXPECT_EQ(content, "Hello there");
  EXPECT_EQ(finishes, std::vector<std::string>{"stop"});
  EXPECT_EQ(ids.size(), 1u);
}

TEST_F(ApiServerTest, ToolCallsComeWholeAndStreamed) {
  start(true, [](const Request&, int) { return ids_of_call("weather", R"({"city":"Paris"})"); });
  const std::string more = R"("tools": [{"type": "function", "function": {"name": "weather"}}], "tool_choice":
      {"type": "function", "function": {"name": "weather"}})";
  const json::Value answer = chat(more).json();
  EXPECT_EQ(answer.at_pointer("/choices/0/finish_reason"), "tool_calls");
  EXPECT_EQ(answer.at_pointer("/choices/0/message/tool_calls/0/function/name"), "weather");
  EXPECT_EQ(answer.at_pointer("/choices/0/message/tool_calls/0/function/arguments"), R"({"city":"Paris"})");
  ASSERT_EQ(engine_->last_request.masks.size(), 1u) << "the named tool's header is forced";
  std::string arguments, finish;
  int named = 0;
  for (const std::string& event : stream("/v1/chat/completions", chat_body(more + R"(, "stream": true)"))) {
    if (event == "[DONE]") break;
    const json::Value chunk = *json::parse(event);
    const json::Value& choice = chunk.at_pointer("/choices/0");
    if (!choice.at("finish_reason").is_null()) finish = choice.at("finish_reason").get_string();
    const json::Value* calls = choice.at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    const json::Value& call = calls->at(0);
    named += call.as_object().contains("id") ? 1 : 0;
    EXPECT_EQ(call.at("index"), 0);
    arguments += std::string_view(call.at_pointer("/function/arguments").get_string());
  }
  EXPECT_EQ(named, 1);
  EXPECT_EQ(arguments, R"({"city":"Paris"})");
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(ApiServerTest, ChoicesAreIndependentAndTheirTokensAreSummed) {
  start(true,
        [](const Request&, int choice) { return ids_of("", std::string(static_cast<std::size_t>(choice) + 1, 'a')); });
  const json::Value answer = chat(R"("n": 3)").json();
  ASSERT_EQ(answer.at("choices").as_array().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const json::Value& choice = answer.at("choices").as_array()[static_cast<std::size_t>(i)];
    EXPECT_EQ(choice.at("index"), i);
    EXPECT_EQ(choice.at_pointer("/message/content"), json::Value(std::string(static_cast<std::size_t>(i) + 1, 'a')));
  }
  EXPECT_EQ(answer.at_pointer("/usage/completion_tokens"), 3 + 4 + 5);
}

TEST_F(ApiServerTest, AStopStringEndsTheGenerationItself) {
  start(true, [](const Request&, int) { return ids_of("", "one two " + std::string(5000, 'x')); });
  const json::Value answer = chat(R"("stop": "two", "max_tokens": 190)").json();
  EXPECT_EQ(answer.at_pointer("/choices/0/message/content"), "one ");
  EXPECT_EQ(answer.at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(engine_->cancelled, 1);
}

TEST_F(ApiServerTest, MaxTokensIsClampedToTheContext) {
  start();
  chat(R"("max_tokens": 1000000)");
  EXPECT_EQ(engine_->last_request.decoding.max_tokens, 200 - 3);
  chat(R"("max_tokens": 5)");
  EXPECT_EQ(engine_->last_request.decoding.max_tokens, 5);
  chat();
  EXPECT_EQ(engine_->last_request.decoding.max_tokens, 197);
  EXPECT_EQ(engine_->last_request.decoding.stop_tokens, (std::vector<std::int32_t>{kReturn, kCall}));
}

TEST_F(ApiServerTest, TheStopIdsOfTheCallerComeOnTopOfTheFormats) {
  start(true, [](const Request&, int) { return std::vector<std::int32_t>{kFinal, 'a', '!', 'b'}; });
  const json::Value answer = chat(R"("stop_token_ids": [33])").json();
  EXPECT_EQ(engine_->last_request.decoding.stop_tokens, (std::vector<std::int32_t>{33, kReturn, kCall}));
  EXPECT_EQ(answer.at_pointer("/choices/0/stop_reason"), 33);
  EXPECT_EQ(answer.at_pointer("/choices/0/finish_reason"), "stop");
}

TEST_F(ApiServerTest, ErrorsHaveOpenAisShapeAndTheirStatus) {
  start();
  const auto check = [](const Answer& answer, int status, std::string_view code, std::string_view param) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json::Value error = answer.json().at("error");
    EXPECT_FALSE(error.at("message").get_string().empty());
    EXPECT_TRUE(error.at("type").is_string());
    const auto text = [&](std::string_view name) {
      return error.at(name).is_null() ? std::string() : std::string(error.at(name).get_string());
    };
    EXPECT_EQ(text("code"), code) << answer.body;
    EXPECT_EQ(text("param"), param) << answer.body;
  };
  check(ask(post("/v1/chat/completions", "{\"model\": ")), 400, "", "");
  check(ask(post("/v1/chat/completions", "[]")), 400, "", "");
  check(chat(R"("temperature": 3)"), 400, "decimal_above_max_value", "temperature");
  check(ask(post("/v1/chat/completions", R"({"model": "x", "messages": [{"role": "user", "content": "a"}]})")), 404,
        "model_not_found", "model");
  check(ask(post("/v1/chat/completions",
                 R"({"model": "m", "messages": [{"role": "user", "content": ")" + std::string(199, 'a') + R"("}]})")),
        400, "context_length_exceeded", "messages");
  check(
      ask(post("/v1/chat/completions", R"({"model": "m", "messages": [{"role": "user", "content": "unrenderable"}]})")),
      400, "bad", "messages[0]");
  check(ask(get("/v1/none")), 404, "", "");
  check(ask(get("/v1/chat/completions")), 405, "", "");
  check(ask(get("/v1/models/none")), 404, "model_not_found", "model");
  check(ask(post("/detokenize", R"({"tokens": [262]})")), 400, "invalid_value", "tokens[0]");
}

TEST_F(ApiServerTest, ContextErrorsAreWordedAsAgentsParseThem) {
  start();
  const Answer answer =
      ask(post("/v1/chat/completions",
               R"({"model": "m", "messages": [{"role": "user", "content": ")" + std::string(300, 'a') + R"("}]})"));
  const std::string message(answer.json().at_pointer("/error/message").get_string());
  EXPECT_NE(message.find("maximum context length is 200 tokens"), std::string::npos) << message;
}

TEST_F(ApiServerTest, AFullQueueIsA503WithRetryAfter) {
  step_ = std::chrono::milliseconds(50);
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(post("/v1/chat/completions", chat_body()));
  }
  EXPECT_TRUE(eventually([&] { return engine_->submitted == 4; }));
  const Answer answer = chat();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.json().at_pointer("/error/code"), "queue_full");
  EXPECT_NE(answer.head.find("retry-after: "), std::string::npos);
}

TEST_F(ApiServerTest, AFailureBeforeTheAnswerIsAStatusAndDuringItAnEvent) {
  start(true, [](const Request&, int) { return std::vector<std::int32_t>{kFinal, 'a', 'b', -1}; });
  const Answer whole = chat();
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.head.find("x-should-retry: false"), std::string::npos);
  const auto events = stream("/v1/chat/completions", chat_body(R"("stream": true)"));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(json::parse(events[events.size() - 2])->as_object().contains("error"));
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_FALSE(json::parse(events[i])->as_object().contains("error"));
  }
}

TEST_F(ApiServerTest, ALeavingClientCancelsItsRequest) {
  step_ = std::chrono::milliseconds(5);
  start(true, [](const Request&, int) { return std::vector<std::int32_t>(10'000, 'a'); });
  for (const bool streaming : {true, false}) {
    const int before = engine_->cancelled;
    const int submitted = engine_->submitted;
    RawClient client(server_->port());
    client.send(post("/v1/chat/completions", chat_body(streaming ? R"("stream": true)" : "")));
    EXPECT_TRUE(eventually([&] { return engine_->submitted == submitted + 1; }));
    if (streaming) client.receive_until("\"a");
    client.close();
    EXPECT_TRUE(eventually([&] { return engine_->cancelled == before + 1; }));
    EXPECT_TRUE(eventually([&] { return engine_->stats().requests_running == 0; }));
  }
  EXPECT_NE(ask(get("/metrics")).body.find("rose_client_disconnects_total{engine=\"0\",model_name=\"m\"} 2"),
            std::string::npos);
}

TEST_F(ApiServerTest, DrainingRefusesNewRequestsAndFinishesRunningOnes) {
  step_ = std::chrono::milliseconds(10);
  start();
  RawClient running(server_->port());
  running.send(post("/v1/chat/completions", chat_body()));
  EXPECT_TRUE(eventually([&] { return engine_->submitted == 1; }));
  server_->begin_drain();
  EXPECT_EQ(ask(get("/health/ready")).status, 503);
  EXPECT_EQ(ask(get("/health/live")).status, 200);
  const Answer refused = chat();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("connection: close"), std::string::npos);
  EXPECT_NE(running.response().find("Hello there"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server_->requests_in_flight() == 0; }));
}

TEST_F(ApiServerTest, StoppingEndsStreamsWithAnErrorEvent) {
  step_ = std::chrono::milliseconds(5);
  start(true, [](const Request&, int) { return std::vector<std::int32_t>(10'000, 'a'); });
  RawClient client(server_->port());
  client.send(post("/v1/chat/completions", chat_body(R"("stream": true, "max_tokens": 190)")));
  client.receive_until("\"a");
  server_->stop();
  EXPECT_TRUE(client.closed());
  EXPECT_NE(client.got().find("\"shutting_down\""), std::string::npos);
  EXPECT_NE(client.got().find("data: [DONE]"), std::string::npos);
}

TEST_F(ApiServerTest, AStalledEngineIsNotReadyAndThenNotLive) {
  step_ = std::chrono::milliseconds(20);
  start();
  RawClient client(server_->port());
  engine_->heartbeat_age_s = 1000;
  EXPECT_EQ(ask(get("/health/ready")).status, 200) << "idle, so nothing is stalled";
  client.send(post("/v1/chat/completions", chat_body()));
  EXPECT_TRUE(eventually([&] { return engine_->stats().requests_running == 1; }));
  EXPECT_EQ(ask(get("/health/ready")).status, 503);
  EXPECT_EQ(ask(get("/health/live")).status, 503);
}

TEST_F(ApiServerTest, ModelsAreListedUnderAllTheirNames) {
  start();
  const json::Value list = ask(get("/v1/models")).json();
  EXPECT_EQ(list.at("object"), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 2u);
  EXPECT_EQ(list.at_pointer("/data/1/id"), "org/m");
  EXPECT_EQ(list.at_pointer("/data/0/max_model_len"), 200);
  EXPECT_EQ(ask(get("/v1/models/org/m")).json().at("id"), "org/m");
  EXPECT_EQ(ask(get("/v1/models/org%2Fm")).json().at("id"), "org/m");
  EXPECT_EQ(ask(get("/version")).json().at("version"), "1.2.3");
  EXPECT_NE(ask(get("/")).body.find("rose"), std::string::npos);
}

TEST_F(ApiServerTest, CompletionsTakeAndGiveRawText) {
  start(true,
        [](const Request&, int) { return std::vector<std::int32_t>{'o', 'n', 'e', 'S', 'T', 'O', 'P', 'x', kReturn}; });
  const auto ask_for = [&](const std::string& more) {
    return ask(post("/v1/completions", R"({"model": "m", "prompt": "ab")" + more + "}")).json();
  };
  const json::Value plain = ask_for("");
  EXPECT_EQ(plain.at("object"), "text_completion");
  EXPECT_EQ(plain.at_pointer("/choices/0/text"), "oneSTOPx");
  EXPECT_EQ(plain.at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(plain.at_pointer("/usage/prompt_tokens"), 2);
  EXPECT_EQ(plain.at_pointer("/usage/completion_tokens"), 9);
  EXPECT_EQ(ask_for(R"(, "stop": "STOP")").at_pointer("/choices/0/text"), "one");
  EXPECT_EQ(ask_for(R"(, "echo": true)").at_pointer("/choices/0/text"), "aboneSTOPx");
  EXPECT_EQ(ask_for(R"(, "max_tokens": 2)").at_pointer("/choices/0/finish_reason"), "length");
  EXPECT_EQ(ask_for(R"(, "max_tokens": 2)").at_pointer("/choices/0/text"), "on");
  EXPECT_EQ(json::serialize(ask_for(R"(, "logprobs": 1, "max_tokens": 2)").at_pointer("/choices/0/logprobs/tokens")),
            R"(["o","n"])");
  std::string text;
  const auto events = stream("/v1/completions", R"({"model": "m", "prompt": [97, 98], "stream": true})");
  for (const std::string& event : events) {
    if (event != "[DONE]") text += std::string_view(json::parse(event)->at_pointer("/choices/0/text").get_string());
  }
  EXPECT_EQ(text, "oneSTOPx");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(ApiServerTest, TokenizeAndDetokenizeAreInverse) {
  start();
  const json::Value tokens = ask(post("/tokenize", R"({"prompt": "ab", "return_token_strs": true})")).json();
  EXPECT_EQ(json::serialize(tokens.at("tokens")), "[97,98]");
  EXPECT_EQ(tokens.at("count"), 2);
  EXPECT_EQ(json::serialize(tokens.at("token_strs")), R"(["a","b"])");
  EXPECT_EQ(ask(post("/detokenize", R"({"tokens": [97, 98]})")).json().at("prompt"), "ab");
  EXPECT_EQ(json::serialize(
                ask(post("/tokenize", R"({"messages": [{"role": "user", "content": "a"}]})")).json().at("tokens")),
            "[97,10]");
}

TEST_F(ApiServerTest, MetricsCountWhatHappenedUnderVllmsNames) {
  start();
  chat();
  chat(R"("max_tokens": 2)");
  const std::string text = ask(get("/metrics")).body;
  const std::string labels = R"({engine="0",model_name="m")";
  for (const std::string& line :
       {"vllm:request_success_total" + labels.substr(0, 12) + R"(finished_reason="stop",model_name="m"} 1)",
        "vllm:request_success_total" + labels.substr(0, 12) + R"(finished_reason="length",model_name="m"} 1)",
        "vllm:time_to_first_token_seconds_count" + labels + "} 2",
        "vllm:e2e_request_latency_seconds_count" + labels + "} 2", "vllm:request_prompt_tokens_sum" + labels + "} 6",
        "vllm:num_requests_running" + labels + "} 0", "vllm:generation_tokens_total" + labels + "} 24",
        std::string("vllm:kv_cache_usage_perc")}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_EQ(text.find("NaN"), std::string::npos);
}

TEST_F(ApiServerTest, ManyClientsThatComeAndGoLeaveNothingBehind) {
  step_ = std::chrono::microseconds(100);
  start(true, [](const Request&, int) { return ids_of("", std::string(100, 'a')); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        RawClient client(server_->port());
        client.send(post("/v1/chat/completions", chat_body(i % 2 == 0 ? R"("stream": true)" : "")));
        if ((i + t) % 3 == 0) client.receive_until("finish_reason", 0.01);
        if ((i + t) % 3 == 1) client.receive_until("[DONE]", 0.05);
        if (i % 5 == 0) client.reset();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return server_->requests_in_flight() == 0 && engine_->stats().requests_running == 0; }));
  EXPECT_EQ(chat().status, 200);
}

}  // namespace
}  // namespace rose
