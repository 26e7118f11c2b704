#include "server/openai/chat_request.h"

#include <gtest/gtest.h>

#include "server/openai/completions.h"

namespace rose::openai {
namespace {

const ApiLimits kLimits{.vocabulary = 1000};

// A valid request with `more` members added ("" or "\"a\": 1").
std::string with(std::string_view more) {
  return R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])" +
         (more.empty() ? std::string() : ", " + std::string(more)) + "}";
}
std::string with_messages(std::string_view messages) {
  return R"({"model": "m", "messages": )" + std::string(messages) + "}";
}

Result<ChatRequest> parse(const std::string& text) {
  const Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "{}: {}", text, value.error().message);
  return parse_chat_request(*value, kLimits);
}

ChatRequest parsed(const std::string& text) {
  Result<ChatRequest> result = parse(text);
  EXPECT_TRUE(result.ok()) << text << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : ChatRequest();
}

struct Refused {
  const char* name;
  std::string text;
  const char* param;
};

class ChatRequestRefused : public ::testing::TestWithParam<Refused> {};

TEST_P(ChatRequestRefused, NamesTheFieldAtFault) {
  const auto& [name, text, param] = GetParam();
  const Result<ChatRequest> result = parse(text);
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_EQ(result.error().status, 400);
  EXPECT_EQ(result.error().param, param) << result.error().message;
  EXPECT_FALSE(result.error().message.empty());
}

const std::string kTools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";

INSTANTIATE_TEST_SUITE_P(
    Cases, ChatRequestRefused,
    ::testing::Values(
        Refused{"no_model", R"({"messages": [{"role": "user", "content": "hi"}]})", "model"},
        Refused{"model_not_text", R"({"model": 1, "messages": []})", "model"},
        Refused{"no_messages", R"({"model": "m"})", "messages"},
        Refused{"messages_empty", with_messages("[]"), "messages"},
        Refused{"messages_object", with_messages("{}"), "messages"},
        Refused{"message_text", with_messages(R"(["hi"])"), "messages[0]"},
        Refused{"no_role", with_messages(R"([{"content": "hi"}])"), "messages[0].role"},
        Refused{"role_unknown", with_messages(R"([{"role": "bot", "content": "hi"}])"), "messages[0].role"},
        Refused{"no_content", with_messages(R"([{"role": "user"}])"), "messages[0].content"},
        Refused{"content_number", with_messages(R"([{"role": "user", "content": 5}])"), "messages[0].content"},
        Refused{"part_text", with_messages(R"([{"role": "user", "content": ["a"]}])"), "messages[0].content[0]"},
        Refused{"part_no_type", with_messages(R"([{"role": "user", "content": [{"text": "a"}]}])"),
                "messages[0].content[0].type"},
        Refused{
            "part_image",
            with_messages(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])"),
            "messages[0].content[1].type"},
        Refused{"part_file", with_messages(R"([{"role": "user", "content": [{"type": "input_file"}]}])"),
                "messages[0].content[0].type"},
        Refused{"part_text_missing", with_messages(R"([{"role": "user", "content": [{"type": "text"}]}])"),
                "messages[0].content[0].text"},
        Refused{"tool_without_id", with_messages(R"([{"role": "tool", "content": "x"}])"), "messages[0].tool_call_id"},
        Refused{"function_without_name", with_messages(R"([{"role": "function", "content": "x"}])"),
                "messages[0].name"},
        Refused{"only_an_empty_turn", with_messages(R"([{"role": "assistant", "content": null}])"), "messages"},
        Refused{
            "call_without_id",
            with_messages(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}])"),
            "messages[0].tool_calls[0].id"},
        Refused{"call_custom",
                with_messages(R"([{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}])"),
                "messages[0].tool_calls[0].type"},
        Refused{"call_without_function", with_messages(R"([{"role": "assistant", "tool_calls": [{"id": "1"}]}])"),
                "messages[0].tool_calls[0].function"},
        Refused{
            "call_arguments_number",
            with_messages(
                R"([{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": 1}}]}])"),
            "messages[0].tool_calls[0].function.arguments"},
        Refused{"tools_text", with(R"("tools": "f")"), "tools"},
        Refused{"tool_text", with(R"("tools": ["f"])"), "tools[0]"},
        Refused{"tool_custom", with(R"("tools": [{"type": "custom", "custom": {"name": "f"}}])"), "tools[0].type"},
        Refused{"tool_no_function", with(R"("tools": [{"type": "function"}])"), "tools[0].function"},
        Refused{"tool_no_name", with(R"("tools": [{"type": "function", "function": {}}])"), "tools[0].function.name"},
        Refused{"tool_long_name",
                with(R"("tools": [{"type": "function", "function": {"name": ")" + std::string(65, 'f') + R"("}}])"),
                "tools[0].function.name"},
        Refused{"tool_twice",
                with(R"("tools": [{"type": "function", "function": {"name": "f"}}, {"function": {"name": "f"}}])"),
                "tools[1].function.name"},
        Refused{"tool_parameters_text",
                with(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}])"),
                "tools[0].function.parameters"},
        Refused{"choice_unknown", with(kTools + R"(, "tool_choice": "maybe")"), "tool_choice"},
        Refused{"choice_number", with(kTools + R"(, "tool_choice": 1)"), "tool_choice"},
        Refused{"choice_required_without_tools", with(R"("tool_choice": "required")"), "tool_choice"},
        Refused{"choice_named_without_tools", with(R"("tool_choice": {"type": "function", "function": {"name": "f"}})"),
                "tool_choice"},
        Refused{"choice_undeclared",
                with(kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})"), "tool_choice"},
        Refused{"choice_hosted", with(kTools + R"(, "tool_choice": {"type": "web_search"})"), "tool_choice.type"},
        Refused{
            "choice_allowed_mode",
            with(kTools + R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}})"),
            "tool_choice.allowed_tools.mode"},
        Refused{"format_unknown", with(R"("response_format": {"type": "xml"})"), "response_format.type"},
        Refused{"format_no_schema", with(R"("response_format": {"type": "json_schema"})"),
                "response_format.json_schema"},
        Refused{"format_no_name", with(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})"),
                "response_format.json_schema.name"},
        Refused{"format_schema_text",
                with(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": "x"}})"),
                "response_format.json_schema.schema"},
        Refused{"effort_unknown", with(R"("reasoning_effort": "extreme")"), "reasoning_effort"},
        Refused{"effort_inner", with(R"("reasoning": {"effort": "extreme"})"), "reasoning.effort"},
        Refused{"kwargs_template", with(R"("chat_template_kwargs": {"builtin_tools": []})"),
                "chat_template_kwargs.builtin_tools"},
        Refused{"chat_template", with(R"("chat_template": "{{ x }}")"), "chat_template"},
        Refused{"temperature_above", with(R"("temperature": 2.01)"), "temperature"},
        Refused{"temperature_below", with(R"("temperature": -0.01)"), "temperature"},
        Refused{"temperature_text", with(R"("temperature": "1")"), "temperature"},
        Refused{"temperature_huge", with(R"("temperature": 1e308)"), "temperature"},
        Refused{"top_p_above", with(R"("top_p": 1.1)"), "top_p"},
        Refused{"min_p_above", with(R"("min_p": 1.1)"), "min_p"},
        Refused{"top_k_below", with(R"("top_k": -2)"), "top_k"},
        Refused{"top_k_decimal", with(R"("top_k": 1.5)"), "top_k"},
        Refused{"penalty_above", with(R"("presence_penalty": 2.5)"), "presence_penalty"},
        Refused{"frequency_below", with(R"("frequency_penalty": -2.5)"), "frequency_penalty"},
        Refused{"repetition_zero", with(R"("repetition_penalty": 0)"), "repetition_penalty"},
        Refused{"max_tokens_zero", with(R"("max_tokens": 0)"), "max_tokens"},
        Refused{"max_tokens_negative", with(R"("max_tokens": -1)"), "max_tokens"},
        Refused{"max_tokens_2_31", with(R"("max_tokens": 2147483648)"), "max_tokens"},
        Refused{"max_tokens_2_63", with(R"("max_tokens": 9223372036854775808)"), "max_tokens"},
        Refused{"max_completion_tokens_text", with(R"("max_completion_tokens": "9")"), "max_completion_tokens"},
        Refused{"n_zero", with(R"("n": 0)"), "n"}, Refused{"n_above", with(R"("n": 9)"), "n"},
        Refused{"seed_decimal", with(R"("seed": 1.5)"), "seed"}, Refused{"stop_number", with(R"("stop": 1)"), "stop"},
        Refused{"stop_inner", with(R"("stop": ["a", 1])"), "stop"},
        Refused{"stop_five", with(R"("stop": ["a", "b", "c", "d", "e"])"), "stop"},
        Refused{"stop_long", with(R"("stop": ")" + std::string(257, 'a') + "\""), "stop"},
        Refused{"stop_ids_above", with(R"("stop_token_ids": [1000])"), "stop_token_ids"},
        Refused{"stop_ids_negative", with(R"("stop_token_ids": [-1])"), "stop_token_ids"},
        Refused{"bias_key_text", with(R"("logit_bias": {"a": 1})"), "logit_bias"},
        Refused{"bias_key_above", with(R"("logit_bias": {"1000": 1})"), "logit_bias"},
        Refused{"bias_key_negative", with(R"("logit_bias": {"-1": 1})"), "logit_bias"},
        Refused{"bias_value_above", with(R"("logit_bias": {"1": 101})"), "logit_bias"},
        Refused{"bias_value_text", with(R"("logit_bias": {"1": "1"})"), "logit_bias"},
        Refused{"logprobs_number", with(R"("logprobs": 1)"), "logprobs"},
        Refused{"top_logprobs_above", with(R"("logprobs": true, "top_logprobs": 21)"), "top_logprobs"},
        Refused{"top_logprobs_alone", with(R"("top_logprobs": 2)"), "top_logprobs"},
        Refused{"stream_text", with(R"("stream": "yes")"), "stream"},
        Refused{"stream_options_text", with(R"("stream": true, "stream_options": "x")"), "stream_options"},
        Refused{"include_usage_text", with(R"("stream": true, "stream_options": {"include_usage": 1})"),
                "stream_options.include_usage"},
        Refused{"modalities_audio", with(R"("modalities": ["text", "audio"])"), "modalities"},
        Refused{"audio", with(R"("audio": {"voice": "x"})"), "audio"},
        Refused{"web_search", with(R"("web_search_options": {})"), "web_search_options"},
        Refused{"prompt_logprobs", with(R"("prompt_logprobs": -1)"), "prompt_logprobs"},
        Refused{"guided_json", with(R"("guided_json": {})"), "guided_json"},
        Refused{"parallel_text", with(R"("parallel_tool_calls": "no")"), "parallel_tool_calls"},
        Refused{"salt_long", with(R"("cache_salt": ")" + std::string(129, 'a') + "\""), "cache_salt"},
        Refused{"salt_characters", with(R"("cache_salt": "a b")"), "cache_salt"},
        Refused{"continue_user", with(R"("continue_final_message": true)"), "continue_final_message"}),
    [](const auto& info) { return info.param.name; });

TEST(ChatRequest, DefaultsAreTheModelsRecommendedOnes) {
  const ChatRequest request = parsed(with(""));
  EXPECT_EQ(request.sampling.model, "m");
  EXPECT_EQ(request.sampling.decoding.temperature, 1.0f);
  EXPECT_EQ(request.sampling.decoding.top_p, 1.0f);
  EXPECT_EQ(request.sampling.decoding.top_logprobs, -1);
  EXPECT_EQ(request.sampling.decoding.max_tokens, 0);
  EXPECT_FALSE(request.sampling.decoding.seed);
  EXPECT_EQ(request.sampling.n, 1);
  EXPECT_FALSE(request.sampling.stream);
  EXPECT_TRUE(request.include_reasoning);
  EXPECT_EQ(request.conversation.effort, ReasoningEffort::kMedium);
  EXPECT_EQ(request.conversation.tool_choice.mode, ToolChoiceMode::kAuto);
  ASSERT_EQ(request.conversation.messages.size(), 1u);
  EXPECT_EQ(request.conversation.messages[0].content, "hi");
}

TEST(ChatRequest, NullIsAbsent) {
  const ChatRequest request = parsed(with(
      R"("temperature": null, "stop": null, "tools": null, "tool_choice": null, "response_format": null, "seed": null,
         "max_tokens": null, "logprobs": null, "top_logprobs": null, "stream": null, "stream_options": null, "n": null,
         "logit_bias": null, "reasoning_effort": null, "functions": null, "audio": null, "use_beam_search": false)"));
  EXPECT_EQ(request.sampling.decoding.temperature, 1.0f);
  EXPECT_TRUE(request.sampling.stop.empty());
}

TEST(ChatRequest, IgnoredFieldsAreIgnored) {
  parsed(with(R"("user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto", "prompt_cache_key": "k",
                 "verbosity": "low", "prediction": {}, "modalities": ["text"], "safety_identifier": "x",
                 "something_new": [1, 2, 3])"));
}

TEST(ChatRequest, EveryDecodingFieldArrives) {
  const ChatRequest request = parsed(with(
      R"("temperature": 0.5, "top_p": 0.25, "min_p": 0.125, "top_k": 7, "presence_penalty": -1, "frequency_penalty": 2,
         "repetition_penalty": 1.5, "seed": -3, "max_tokens": 10, "max_completion_tokens": 20.0, "min_tokens": 2,
         "ignore_eos": true, "n": 3, "stop": ["a", "", "b"], "stop_token_ids": [5, 999], "logit_bias": {"7": -100},
         "logprobs": true, "top_logprobs": 20, "stream": true, "priority": -4, "cache_salt": "s-1",
         "stream_options": {"include_usage": true, "continuous_usage_stats": true, "include_obfuscation": false})"));
  const DecodingOptions& decoding = request.sampling.decoding;
  EXPECT_EQ(decoding.temperature, 0.5f);
  EXPECT_EQ(decoding.top_p, 0.25f);
  EXPECT_EQ(decoding.min_p, 0.125f);
  EXPECT_EQ(decoding.top_k, 7);
  EXPECT_EQ(decoding.presence_penalty, -1.0f);
  EXPECT_EQ(decoding.frequency_penalty, 2.0f);
  EXPECT_EQ(decoding.repetition_penalty, 1.5f);
  EXPECT_EQ(decoding.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(decoding.max_tokens, 20) << "max_completion_tokens wins";
  EXPECT_EQ(decoding.min_tokens, 2);
  EXPECT_TRUE(decoding.ignore_stop);
  EXPECT_EQ(decoding.top_logprobs, 20);
  EXPECT_EQ(decoding.stop_tokens, (std::vector<std::int32_t>{5, 999}));
  EXPECT_EQ(decoding.logit_bias, (std::vector<std::pair<std::int32_t, float>>{{7, -100.0f}}));
  EXPECT_EQ(request.sampling.n, 3);
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.sampling.stream && request.sampling.include_usage && request.sampling.continuous_usage);
  EXPECT_EQ(request.sampling.priority, -4);
  EXPECT_EQ(request.sampling.cache_salt, "s-1");
}

TEST(ChatRequest, EdgesOfSamplingMeanWhatTheySay) {
  EXPECT_EQ(parsed(with(R"("top_p": 0)")).sampling.decoding.temperature, 0.0f) << "the most likely token alone";
  EXPECT_EQ(parsed(with(R"("top_k": -1)")).sampling.decoding.top_k, 0);
  EXPECT_EQ(parsed(with(R"("seed": 18446744073709551615)")).sampling.decoding.seed, ~0ull);
  EXPECT_EQ(parsed(with(R"("logprobs": true)")).sampling.decoding.top_logprobs, 0);
  EXPECT_EQ(parsed(with(R"("logprobs": false, "top_logprobs": 0)")).sampling.decoding.top_logprobs, -1);
}

TEST(ChatRequest, EverySpellingOfEffortIsRead) {
  const std::pair<const char*, ReasoningEffort> cases[] = {
      {"none", ReasoningEffort::kLow},      {"minimal", ReasoningEffort::kLow}, {"low", ReasoningEffort::kLow},
      {"medium", ReasoningEffort::kMedium}, {"high", ReasoningEffort::kHigh},   {"xhigh", ReasoningEffort::kHigh},
      {"max", ReasoningEffort::kHigh}};
  for (const auto& [text, effort] : cases) {
    for (const std::string& form :
         {fmt::format(R"("reasoning_effort": "{}")", text), fmt::format(R"("reasoning": {{"effort": "{}"}})", text),
          fmt::format(R"("chat_template_kwargs": {{"reasoning_effort": "{}"}})", text)}) {
      EXPECT_EQ(parsed(with(form)).conversation.effort, effort) << form;
    }
  }
  EXPECT_EQ(parsed(with(R"("reasoning": {"enabled": false})")).conversation.effort, ReasoningEffort::kLow);
}

TEST(ChatRequest, ReasoningCanBeLeftOut) {
  for (const char* form :
       {R"("include_reasoning": false)", R"("reasoning": {"exclude": true})", R"("reasoning_format": "hidden")"}) {
    EXPECT_FALSE(parsed(with(form)).include_reasoning) << form;
  }
  EXPECT_TRUE(parsed(with(R"("reasoning_format": "auto", "separate_reasoning": false)")).include_reasoning);
}

TEST(ChatRequest, PartsAreJoinedAndEverySpellingOfTextIsTaken) {
  const ChatRequest request = parsed(with_messages(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"},
          {"type": "output_text", "text": "c"}, {"type": "refusal", "refusal": "d"}]}])"));
  EXPECT_EQ(request.conversation.messages[0].content, "abcd");
}

TEST(ChatRequest, RepliedTurnsComeBackInEverySpelling) {
  for (const char* field : {R"("reasoning": "why")", R"("reasoning_content": "why")", R"("thinking": "why")",
                            R"("reasoning": "", "reasoning_content": "why")", R"("reasoning": null, "thinking": "why")",
                            R"("reasoning_details": [{"text": "w"}, {"other": 1}, {"text": "hy"}])"}) {
    const ChatRequest request = parsed(with_messages(
        fmt::format(R"([{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": null, {}, "tool_calls":
            [{{"id": "c1", "type": "function", "function": {{"name": "f", "arguments": {{"x": "a"}}}}}}]}},
            {{"role": "tool", "tool_call_id": "c1", "content": [{{"type": "text", "text": "12"}}]}}])",
                    field)));
    ASSERT_EQ(request.conversation.messages.size(), 3u);
    const ChatMessage& turn = request.conversation.messages[1];
    EXPECT_EQ(turn.reasoning, "why") << field;
    ASSERT_EQ(turn.tool_calls.size(), 1u);
    EXPECT_EQ(turn.tool_calls[0].id, "c1");
    EXPECT_EQ(turn.tool_calls[0].name, "f");
    EXPECT_EQ(turn.tool_calls[0].arguments, R"({"x":"a"})");
    EXPECT_EQ(request.conversation.messages[2].role, Role::kTool);
    EXPECT_EQ(request.conversation.messages[2].tool_call_id, "c1");
    EXPECT_EQ(request.conversation.messages[2].content, "12");
  }
}

TEST(ChatRequest, ArgumentsAreKeptVerbatim) {
  const ChatRequest request = parsed(with_messages(
      R"([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": " { \"x\":1 "}}]}])"));
  EXPECT_EQ(request.conversation.messages[0].tool_calls[0].arguments, " { \"x\":1 ");
}

TEST(ChatRequest, LegacyFunctionsAreTools) {
  const ChatRequest request = parsed(
      R"({"model": "m", "messages": [{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
          {"role": "function", "name": "f", "content": "r"}],
          "functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}], "function_call": {"name": "f"}})");
  EXPECT_EQ(request.conversation.messages[0].tool_calls[0].name, "f");
  EXPECT_EQ(request.conversation.messages[1].role, Role::kTool);
  EXPECT_EQ(request.conversation.messages[1].name, "f");
  ASSERT_EQ(request.conversation.tools.size(), 1u);
  EXPECT_EQ(request.conversation.tools[0].description, "d");
  EXPECT_EQ(request.conversation.tool_choice.mode, ToolChoiceMode::kNamed);
}

TEST(ChatRequest, ToolsNeedOnlyAName) {
  const ChatRequest request = parsed(with(
      R"("tools": [{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": true}}])"));
  ASSERT_EQ(request.conversation.tools.size(), 1u);
  EXPECT_EQ(request.conversation.tools[0].description, "");
  EXPECT_FALSE(request.conversation.tools[0].parameters);
  EXPECT_TRUE(parsed(with(R"("tools": [])")).conversation.tools.empty());
  EXPECT_TRUE(parsed(with_messages(R"([{"role": "assistant", "content": "a", "tool_calls": []}])"))
                  .conversation.messages[0]
                  .tool_calls.empty());
}

TEST(ChatRequest, EveryToolChoiceIsRead) {
  const auto choice = [](std::string_view text) {
    return parsed(with(kTools + R"(, "tool_choice": )" + std::string(text))).conversation.tool_choice;
  };
  EXPECT_EQ(choice(R"("auto")").mode, ToolChoiceMode::kAuto);
  EXPECT_EQ(choice(R"("none")").mode, ToolChoiceMode::kNone);
  EXPECT_EQ(choice(R"("required")").mode, ToolChoiceMode::kRequired);
  for (const char* named :
       {R"({"type": "function", "function": {"name": "f"}})", R"({"type": "function", "name": "f"})"}) {
    EXPECT_EQ(choice(named).mode, ToolChoiceMode::kNamed);
    EXPECT_EQ(choice(named).names, std::vector<std::string>{"f"});
  }
  const ToolChoice allowed = choice(
      R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}})");
  EXPECT_EQ(allowed.mode, ToolChoiceMode::kRequired);
  EXPECT_EQ(allowed.names, std::vector<std::string>{"f"});
}

TEST(ChatRequest, ResponseFormatsBecomeSchemas) {
  EXPECT_FALSE(parsed(with(R"("response_format": {"type": "text"})")).conversation.response_format);
  const auto object = parsed(with(R"("response_format": {"type": "json_object"})")).conversation.response_format;
  ASSERT_TRUE(object);
  EXPECT_EQ(json::serialize(object->schema), R"({"type":"object"})");
  const auto schema = parsed(with(R"("response_format": {"type": "json_schema", "json_schema":
                     {"name": "n", "description": "d", "strict": true, "schema": {"type": "array"}}})"))
                          .conversation.response_format;
  ASSERT_TRUE(schema);
  EXPECT_EQ(schema->name, "n");
  EXPECT_EQ(schema->description, "d");
  EXPECT_EQ(json::serialize(schema->schema), R"({"type":"array"})");
}

TEST(ChatRequest, TooManyOfAnythingIsRefused) {
  std::string messages = "[", parts = "[", tools = "[";
  for (int i = 0; i < 2049; ++i) messages += std::string(i > 0 ? "," : "") + R"({"role": "user", "content": "a"})";
  for (int i = 0; i < 65; ++i) parts += std::string(i > 0 ? "," : "") + R"({"type": "text", "text": "a"})";
  for (int i = 0; i < 129; ++i) tools += fmt::format(R"({}{{"function": {{"name": "f{}"}}}})", i > 0 ? "," : "", i);
  EXPECT_EQ(parse(with_messages(messages + "]")).error().param, "messages");
  EXPECT_EQ(parse(with_messages(R"([{"role": "user", "content": )" + parts + "]}]")).error().param,
            "messages[0].content");
  EXPECT_EQ(parse(with(R"("tools": )" + tools + "]")).error().param, "tools");
}

Result<CompletionRequest> completion(const std::string& text) {
  const Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "{}", text);
  return parse_completion_request(*value, kLimits);
}

TEST(CompletionRequest, PromptsAreTextOrIds) {
  EXPECT_EQ(std::get<std::string>(completion(R"({"model": "m", "prompt": "a"})")->prompt), "a");
  EXPECT_EQ(std::get<std::string>(completion(R"({"model": "m", "prompt": ["a"]})")->prompt), "a");
  const std::vector<TokenId> ids = {1, 2};
  EXPECT_EQ(std::get<std::vector<TokenId>>(completion(R"({"model": "m", "prompt": [1, 2]})")->prompt), ids);
  EXPECT_EQ(std::get<std::vector<TokenId>>(completion(R"({"model": "m", "prompt": [[1, 2]]})")->prompt), ids);
  EXPECT_EQ(completion(R"({"model": "m", "prompt": "a"})")->sampling.decoding.max_tokens, 16);
  for (const auto& [text, param] :
       {std::pair{R"({"model": "m"})", "prompt"}, std::pair{R"({"model": "m", "prompt": 1})", "prompt"},
        std::pair{R"({"model": "m", "prompt": ["a", "b"]})", "prompt"},
        std::pair{R"({"model": "m", "prompt": [1000]})", "prompt"},
        std::pair{R"({"model": "m", "prompt": [-1]})", "prompt"},
        std::pair{R"({"model": "m", "prompt": "a", "logprobs": 6})", "logprobs"},
        std::pair{R"({"model": "m", "prompt": "a", "best_of": 2})", "best_of"},
        std::pair{R"({"model": "m", "prompt": "a", "suffix": "b"})", "suffix"}}) {
    const auto result = completion(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().param, param) << text;
  }
}

}  // namespace
}  // namespace rose::openai
