// What comes out of a generation, by rule: the deviations D1 to D28 of the format's spec and the faults that other
// parsers shipped (PARSE-, STREAM-, TOOL-, API- numbers). A generation starts right behind the prompt's
// "<|start|>assistant".
#include "chat/harmony/parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "chat/harmony/harmony.h"
#include "chat/harmony/test_support.h"

namespace rose::harmony {
namespace {

using Call = Transcript::Call;

struct Case {
  const char* name;
  const char* text;  // special tokens by their strings
  const char* reasoning = "";
  const char* content = "";
  std::vector<Call> calls = {};
  bool wants_stop = false;
  std::vector<std::string> tools = {"f", "g", "web-look"};
};

constexpr const char* kX = "{\"x\":\"a\"}";
const Call kCallF{"f", kX, true};

// clang-format off
const std::vector<Case> kCases = {
    {"Plain", "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Say.<|return|>", "Think.", "Say."},
    {"D1_no_space_before_constrain", "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D2_recipient_behind_role", " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D2_recipient_behind_channel", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D3_PARSE01_refusal_first", "No, not this.<|end|><|start|>assistant<|channel|>analysis<|message|>decline<|end|><|start|>assistant<|channel|>final<|message|>Sorry.<|return|>", "No, not this.\ndecline", "Sorry."},
    {"D3_refusal_alone", "I must refuse.\n  Sorry.<|return|>", "", "I must refuse.\n  Sorry."},
    {"D4_analysis_without_message", "<|channel|>analysis so  far<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>", "so  far", "42"},
    {"D4_final_without_message", "<|channel|>final 42 it is<|return|>", "", "42 it is"},
    {"D5_PARSE05_empty_channel", "<|channel|><|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>", "thinking", "42"},
    {"D6_PARSE05_two_starts", "<|channel|>analysis<|message|>a<|end|><|start|><|start|>assistant<|channel|>final<|message|>42<|return|>", "a", "42"},
    {"D6_start_again_with_role", "<|start|>assistant<|start|>assistant<|channel|>final<|message|>42<|return|>", "", "42"},
    {"D6_PARSE05_role_twice", "<|channel|>analysis<|message|>a<|end|><|start|>assistantassistant<|channel|>final<|message|>42<|return|>", "a", "42"},
    {"D7_PARSE05_lone_word_between", "<|channel|>analysis<|message|>a<|end|>z<|start|>assistant<|channel|>final<|message|>42<|return|>", "a\nz", "42"},
    {"D7_stray_marks_between", "<|channel|>analysis<|message|>a<|end|><|end|><|constrain|> \n<|reserved_1|><|start|>assistant<|channel|>final<|message|>42<|return|>", "a", "42"},
    {"D7_stray_return_between", "<|channel|>final<|message|>ok<|end|><|return|>junk<|start|>", "", "ok"},
    {"D7_stray_call_between", "<|channel|>final<|message|>ok<|end|><|call|>", "", "ok"},
    {"D7_message_between", "<|channel|>analysis<|message|>a<|end|><|message|>b<|return|>", "a", "b"},
    {"D7_channel_between", "<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b<|return|>", "a", "b"},
    {"D8_second_channel_mark", "<|channel|>commentary to=functions.f<|channel|>commentary json<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D9_PARSE07_to_assistant_then_analysis", "<|channel|>commentary to=assistant<|channel|>analysis<|message|>need f<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}<|call|>", "need f", "", {kCallF}},
    {"D10_PARSE06_question_marks", "<|channel|>?\?<|end|><|start|>assistant<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "?\?\na", "b"},
    {"D10_PARSE06_commentary_2", "<|channel|>commentary 2?<|message|>look<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "", "look\nb"},
    {"D10_PARSE06_commentary_twice", "<|channel|>commentary?commentary?<|message|>look<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "", "look\nb"},
    {"D10_PARSE06_to_assistant_commentary", "<|channel|>commentary to=assistant<|channel|>commentary?<|message|>look<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "", "look\nb"},
    {"D10_PARSE03_dashes", " ––commentary<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"D10_dashes_behind_mark", "<|channel|>––commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"D10_half_a_word", "<|channel|>comment<|message|>look<|return|>", "", "look"},
    {"D10_upper_case", "<|channel|>Final<|message|>look<|return|>", "", "look"},
    {"D11_PARSE04_recipient_twice", "<|channel|>commentary to=functions.web-look to=functions.web-look <|constrain|>json<|message|>{}<|call|>", "", "", {{"web-look", "{}", true}}},
    {"D11_last_recipient_wins", "<|channel|>commentary to=functions.g to=functions.f to= to=assistant<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"D12_PARSE09_call_on_analysis", "<|channel|>analysis<|message|>run it<|end|><|start|>assistant<|channel|>analysis to=functions.f code<|message|>\n{\"x\":\"a\"}<|call|>", "run it", "", {{"f", "\n{\"x\":\"a\"}", true}}},
    {"D12_call_on_final", "<|channel|>final to=functions.f<|message|> {\"x\":\"a\"}<|call|>", "", "", {{"f", " {\"x\":\"a\"}", true}}},
    {"D12_call_on_final_returned", "<|channel|>final to=functions.f<|message|>{\"x\":\"a\"}<|return|>", "", "", {kCallF}},
    {"D12_raw_call_on_final", "<|channel|>final to=functions.f<|message|>print(1)<|call|>", "", "", {{"f", "print(1)", true}}},
    {"D12_call_without_channel", " to=functions.f<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"PARSE16_prose_to_function_on_final", "<|channel|>final to=functions.f<|message|>The file says hello.<|return|>", "", "The file says hello."},
    {"D13_without_functions", "<|channel|>commentary to=f<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D14_to_user", "<|channel|>final to=user<|message|>hi<|return|>", "", "hi"},
    {"D14_to_all_on_analysis", "<|channel|>analysis to=all<|message|>hm<|return|>", "hm", ""},
    {"D15_python", "<|channel|>analysis to=python code<|message|>1+1<|call|>", "", ""},
    {"D15_browser_then_final", "<|channel|>analysis to=browser.search code<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "", "b"},
    {"D15_unknown_bare_name", "<|channel|>commentary to=repo_browser.list<|message|>{}<|call|>", "", ""},
    {"D16_underscore", "<|channel|>commentary to=functions.web_look<|message|>{}<|call|>", "", "", {{"web-look", "{}", true}}},
    {"D16_question_mark", "<|channel|>commentary to=functions.f?<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"D16_quotes", "<|channel|>commentary to=\"functions.f\",<|message|>{}<|call|>", "", "", {{"f", "{}", true}}},
    {"D16_undeclared_raw", "<|channel|>commentary to=functions.other<|message|>{}<|call|>", "", "", {{"other", "{}", true}}},
    {"D16_no_name_at_all", "<|channel|>commentary to=functions.<|message|>{}<|call|>", "", ""},
    {"D16_name_with_symbols", "<|channel|>commentary to=functions.a/b<|message|>{}<|call|>", "", ""},
    {"D16_two_candidates", "<|channel|>commentary to=functions.a.b<|message|>{}<|call|>", "", "", {{"a.b", "{}", true}}, false, {"a-b", "a_b"}},
    {"D17_PARSE11_missing_brace", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"path\":\"a.ts\",\"content\":\"// a\n\n/** doc */\nexport const A = {b: [1]};\"<|call|>", "", "", {{"f", "{\"path\":\"a.ts\",\"content\":\"// a\n\n/** doc */\nexport const A = {b: [1]};\"", true}}},
    {"D17_trailing_bracket", "<|channel|>commentary to=functions.f<|message|>[{}]]<|call|>", "", "", {{"f", "[{}]]", true}}},
    {"D18_PARSE12_end", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}<|end|>", "", "", {kCallF}},
    {"D18_PARSE12_stream_end", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}", "", "", {kCallF}},
    {"D18_return", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}<|return|>", "", "", {kCallF}},
    {"D18_end_of_text", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a\"}<|endoftext|>", "", "", {kCallF}},
    {"D19_bare_json", "{\"answer\": 42}<|return|>", "", "{\"answer\": 42}"},
    {"D19_bare_prose_cut", "Once upon a time", "", "Once upon a time"},
    {"D20_final_constrained", "<|channel|>final <|constrain|>json<|message|>{\"a\":1}<|return|>", "", "{\"a\":1}"},
    {"D21_constrain_then_prose", "<|constrain|>I will not.<|end|><|start|>assistant<|channel|>final<|message|>No.<|return|>", "I will not.", "No."},
    {"D22_imagined_result", "<|channel|>commentary to=functions.f<|message|>{}<|end|><|start|>functions.f to=assistant<|channel|>commentary<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>", "", "", {{"f", "{}", true}}, true},
    {"D22_imagined_user", "<|channel|>final<|message|>Hi.<|end|><|start|>user<|message|>And you?<|end|>", "", "Hi.", {}, true},
    {"D22_imagined_user_without_message", "<|channel|>final<|message|>Hi.<|end|><|start|>user: And you?<|end|>", "", "Hi.", {}, true},
    {"D23_end_of_text", "<|channel|>final<|message|>Hi.<|endoftext|>more", "", "Hi."},
    {"D23_end_of_text_in_header", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>fi<|endoftext|>", "a", ""},
    {"D24_PARSE15_only_analysis", "<|channel|>analysis<|message|>only this<|return|>", "only this", ""},
    {"D26_odd_white_space", "<|channel|>commentary\u00a0to=functions.f\u202fjson<|message|>{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"D27_marks_in_content", "<|channel|>final<|message|>a<|constrain|>b<|message|>c<|reserved_1|>d<|return|>", "", "abcd"},
    {"D27_start_in_content", "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b<|return|>", "a", "b"},
    {"D27_channel_in_content", "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|return|>", "a", "b"},
    {"D28_empty_body", "<|channel|>commentary to=functions.f<|message|><|call|>", "", "", {{"f", "{}", true}}},
    {"D28_blank_body", "<|channel|>commentary to=functions.f<|message|> \n<|call|>", "", "", {{"f", " \n{}", true}}},
    {"PARSE02_words_without_marks", "<|channel|>analysis<|message|>look it up<|end|>commentary to=functions.f<|message|>{\"x\":\"a\"}<|call|>", "look it up", "", {kCallF}},
    {"PARSE02_stop_marks_alone", "<|channel|>analysis<|message|>look it up<|end|><|return|>", "look it up", ""},
    {"PARSE14_return_after_end", "<|channel|>final<|message|>ok<|end|><|return|>", "", "ok"},
    {"PARSE14_ids_after_return", "<|channel|>final<|message|>ok<|return|>a<|start|>b<|message|>c<|channel|>d<|end|>e", "", "ok"},
    {"PARSE15_limit_in_header", "<|channel|>commentary to=functions.", "", ""},
    {"PARSE15_limit_in_channel", "<|channel|>comment", "", ""},
    {"PARSE15_limit_in_role", "<|channel|>analysis<|message|>a<|end|><|start|>assis", "a", ""},
    {"PARSE15_limit_in_bare_header", "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=func", "a", ""},
    {"PARSE15_limit_between", "<|channel|>analysis<|message|>a<|end|>commentary", "a", ""},
    {"Role_replaced_by_recipient", "<|channel|>analysis<|message|>a<|end|><|start|>to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "a", "", {{"f", "{}", true}}},
    {"Call_without_message_mark", "<|channel|>commentary to=functions.f <|constrain|>json{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"Call_without_message_and_type", "<|channel|>commentary to=functions.f{\"x\":\"a\"}<|call|>", "", "", {kCallF}},
    {"Call_without_body_and_message", "<|channel|>commentary to=functions.f<|call|>", "", "", {{"f", "{}", true}}},
    {"Two_calls_of_one_function", "<|channel|>commentary to=functions.f<|message|>{}<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{\"x\":\"a\"}<|call|>", "", "", {{"f", "{}", true}, kCallF}},
    {"Several_of_a_kind", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>commentary<|message|>p<|end|><|start|>assistant<|channel|>final<|message|>q<|return|>", "a\nb", "p\nq"},
    {"API10_preamble_and_final", "<|channel|>commentary<|message|>{\"path\":\"/\"}<|end|><|start|>assistant<|channel|>final<|message|>None found.<|return|>", "", "{\"path\":\"/\"}\nNone found."},
    {"API11_limit_in_arguments", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":\"a", "", "", {{"f", "{\"x\":\"a", false}}},
    {"Limit_in_empty_arguments", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "", "", {{"f", "", false}}},
    {"Limit_in_analysis", "<|channel|>analysis<|message|>so far", "so far", ""},
    {"Limit_in_final", "<|channel|>final<|message|>so far", "", "so far"},
    {"TOOL03_no_tools", "<|channel|>commentary to=ask_user <|constrain|>json<|message|>{\"q\":\"?\"}<|call|>", "", "{\"q\":\"?\"}", {}, false, {}},
    {"TOOL03_no_tools_functions", "<|channel|>commentary to=functions.ask <|constrain|>json<|message|>{\"q\":\"?\"}<|call|>", "", "{\"q\":\"?\"}", {}, false, {}},
    {"D15_no_tools_python", "<|channel|>analysis to=python code<|message|>1+1<|call|>", "1+1", "", {}, false, {}},
    {"Declared_builtin_name", "<|channel|>commentary to=python<|message|>1<|call|>", "", "", {{"python", "1", true}}, false, {"python"}},
    {"Unknown_channel_last", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|message|>b<|return|>", "a", "b"},
    {"Unknown_channels_only", "one<|end|><|start|>assistant<|message|>two<|return|>", "", "one\ntwo"},
    {"Unknown_channel_before_empty_final", "one<|end|><|start|>assistant<|channel|>final<|message|><|return|>", "", "one"},
    {"Unknown_channel_before_call", "one<|end|><|start|>assistant to=functions.f<|message|>{}<|call|>", "one", "", {{"f", "{}", true}}},
    {"Nothing", "", "", ""},
    {"Stop_at_once", "<|return|>", "", ""},
};
// clang-format on

Transcript parse_bytes(const Case& test) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const Harmony harmony(tokenizer, {});
  return parse(harmony, with_tools(test.tools), tokenizer->encode_with_specials(test.text), *tokenizer);
}

class Deviation : public testing::TestWithParam<Case> {};

TEST_P(Deviation, GivesWhatWasMeant) {
  const Case& test = GetParam();
  const Transcript got = parse_bytes(test);
  EXPECT_EQ(got.reasoning, test.reasoning);
  EXPECT_EQ(got.content, test.content);
  ASSERT_EQ(got.calls.size(), test.calls.size());
  bool ended = false;
  for (std::size_t i = 0; i < test.calls.size(); ++i) {
    EXPECT_EQ(got.calls[i].name, test.calls[i].name);
    EXPECT_EQ(got.calls[i].arguments, test.calls[i].arguments);
    EXPECT_EQ(got.calls[i].ended, test.calls[i].ended);
    ended = ended || test.calls[i].ended;
  }
  EXPECT_EQ(got.called_tool, ended);
  EXPECT_EQ(got.wants_stop, test.wants_stop);
}

TEST_P(Deviation, ShowsNoMarkup) {  // STREAM-04
  const Transcript got = parse_bytes(GetParam());
  for (const char* markup : {"<|", "commentary to=", "assistantfinal"}) {
    EXPECT_EQ(got.content.find(markup), std::string::npos) << got.content;
  }
}

TEST_P(Deviation, IsTheSameInTokensOfTheReleasedVocabulary) {
  const Case& test = GetParam();
  const Harmony harmony(o200k(), {});
  std::string text = test.text;
  while (text.find("<|reserved_1|>") != std::string::npos)
    text.replace(text.find("<|reserved_1|>"), 14, "<|reserved_200014|>");
  const Transcript large = parse(harmony, with_tools(test.tools), o200k()->encode_with_specials(text), *o200k());
  const Transcript small = parse_bytes(test);
  EXPECT_EQ(large.reasoning, small.reasoning);
  EXPECT_EQ(large.content, small.content);
  EXPECT_EQ(large.calls, small.calls);
  EXPECT_EQ(large.called_tool, small.called_tool);
  EXPECT_EQ(large.wants_stop, small.wants_stop);
}

INSTANTIATE_TEST_SUITE_P(All, Deviation, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

Transcript parse_ids(const std::vector<TokenId>& ids) {
  return parse(Harmony(o200k(), {}), with_tools({"f"}), ids, *o200k());
}

std::vector<TokenId> joined(std::initializer_list<std::vector<TokenId>> parts) {
  std::vector<TokenId> ids;
  for (const std::vector<TokenId>& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

TEST(Parser, Parse02TheKnownIdsBetweenMessages) {
  const std::vector<TokenId> analysis =
      o200k()->encode_with_specials("<|channel|>analysis<|message|>look it up<|end|>");
  const std::vector<TokenId> call = o200k()->encode_with_specials(" to=functions.f<|message|>{\"x\":\"a\"}<|call|>");
  EXPECT_EQ(parse_ids(joined({analysis, {12606, 815}, call})).calls, std::vector{kCallF});
  for (const TokenId id : {13, 200002, 200003, 200007, 200012}) {
    const Transcript got = parse_ids(joined({analysis, {id}}));
    EXPECT_EQ(got.reasoning, "look it up") << id;
    EXPECT_TRUE(got.calls.empty()) << id;
  }
}

TEST(Parser, D25ReplacesInvalidUtf8AndLeaksNoBytes) {  // STREAM-06
  const std::vector<TokenId> head = o200k()->encode_with_specials("<|channel|>final<|message|>");
  const std::vector<TokenId> rest =
      o200k()->encode_with_specials("ok<|end|><|start|>assistant<|channel|>final<|message|>é<|return|>");
  EXPECT_EQ(parse_ids(joined({head, {9552, 9552}, rest})).content, " \ufffd \ufffdok\né");
  EXPECT_EQ(parse_ids(joined({head, {9552}})).content, " \ufffd");
  EXPECT_EQ(parse_ids(joined({head, {9552, 200007, 200006, 173781, 200005, 17196, 200008, 525, 200002}})).content,
            " \ufffd\nok");
}

TEST(Parser, CutsARecipientAtAMarkWrittenAsText) {  // D16
  const Transcript got = parse_ids(
      joined({o200k()->encode_with_specials("<|channel|>commentary to=functions.f"),
              o200k()->encode("<|channel|>commentary"), o200k()->encode_with_specials("<|message|>{}<|call|>")}));
  EXPECT_EQ(got.calls, (std::vector<Call>{{"f", "{}", true}}));
}

TEST(Parser, ShowsMarksWrittenAsTextAsText) {
  const std::string text = "a <|end|> <|return|> b";
  const Transcript got = parse_ids(
      joined({o200k()->encode_with_specials("<|channel|>final<|message|>"), o200k()->encode(text), {200002}}));
  EXPECT_EQ(got.content, text);
}

TEST(Parser, ShowsACharacterOnceItIsWhole) {
  const Harmony harmony(o200k(), {});
  const auto parser = harmony.parser(with_tools({}));
  std::vector<ChatEvent> events;
  for (const TokenId id : o200k()->encode_with_specials("<|channel|>final<|message|>")) parser->feed(id, events);
  EXPECT_TRUE(events.empty());
  parser->feed(9552, events);  // a space and half an emoji
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.back().text, " ");
  EXPECT_TRUE(parser->last_was_content());
}

TEST(Parser, ReportsACallAtTheEndOfItsHeader) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const auto parser = Harmony(tokenizer, {}).parser(with_tools({"f"}));
  std::vector<ChatEvent> events;
  for (const TokenId id : tokenizer->encode_with_specials("<|channel|>commentary to=functions.f<|message|>")) {
    EXPECT_TRUE(events.empty());
    parser->feed(id, events);
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().kind, ChatEventKind::kToolCallBegin);
}

TEST(Parser, TreatsALongHeaderAsText) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const std::string prose =
      "no header is this long, so that it has to be text that the model forgot to mark as such, see?";
  ASSERT_GT(prose.size(), 64u);
  const Harmony harmony(tokenizer, {});
  const auto of = [&](const std::string& text) {
    return parse(harmony, with_tools({"f"}), tokenizer->encode_with_specials(text), *tokenizer);
  };
  EXPECT_EQ(of(prose + "<|return|>").content, prose);
  EXPECT_EQ(of(prose + "<|return|>").content_tokens, prose);
  EXPECT_EQ(of("<|channel|>analysis " + prose + "<|end|>").reasoning, prose);
  EXPECT_EQ(of("<|channel|>final " + prose + "<|message|>!").content, prose + "!");
}

TEST(Parser, CountsAnalysisIdsWithTheirHeaders) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const auto count = [&](std::string_view text) {
    const std::vector<TokenId> ids = tokenizer->encode_with_specials(text);
    return parse(Harmony(tokenizer, {}), with_tools({"f"}), ids, *tokenizer).reasoning_tokens;
  };
  EXPECT_EQ(count("<|channel|>final<|message|>hello<|return|>"), 0);
  EXPECT_EQ(count("<|channel|>analysis<|message|>abc"), 1 + 8 + 1 + 3);
  EXPECT_EQ(count("<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>final<|message|>hello"),
            1 + 8 + 1 + 3 + 1);
  EXPECT_EQ(count("no<|end|><|start|>assistant<|channel|>final<|message|>hello"), 3);
  const std::string second = "<|start|>assistant<|channel|>analysis<|message|>d<|end|>";
  EXPECT_EQ(
      count("<|channel|>analysis<|message|>abc<|end|>" + second + "<|start|>assistant<|channel|>final<|message|>x"),
      14 + 1 + 9 + 1 + 8 + 1 + 1 + 1);
}

TEST(Parser, NamesTheIdsOfTheContent) {  // API-02
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const auto of = [&](std::string_view text) {
    return parse(Harmony(tokenizer, {}), with_tools({"f"}), tokenizer->encode_with_specials(text), *tokenizer);
  };
  const char* whole =
      "<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>final<|message|>hé👨x<|return|>";
  EXPECT_EQ(of(whole).content_tokens, "hé👨x");
  EXPECT_EQ(of("<|channel|>final to=functions.f<|message|>The file says hello.<|return|>").content_tokens,
            "The file says hello.");
  EXPECT_EQ(of("Bare prose.<|return|>").content_tokens, "Bare prose.");
  EXPECT_EQ(of("<|message|>No channel.<|return|>").content_tokens, "No channel.");
  EXPECT_EQ(of("Bare prose.<|end|><|start|>assistant<|channel|>final<|message|>x").content_tokens, "x");
}

TEST(Parser, FinishesOnce) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const auto parser = Harmony(tokenizer, {}).parser(with_tools({"f"}));
  std::vector<ChatEvent> events;
  for (const TokenId id : tokenizer->encode_with_specials("<|channel|>commentary to=functions.f<|message|>{}"))
    parser->feed(id, events);
  parser->finish(events);
  const std::size_t once = events.size();
  parser->finish(events);
  parser->feed('x', events);
  parser->finish(events);
  EXPECT_EQ(events.size(), once);
}

// Streams that lean towards headers, so that all states are reached.
std::vector<TokenId> random_ids(std::mt19937& random, const ByteTokenizer& tokenizer) {
  static const std::vector<std::string> kWords = {
      "assistant",       "user",     "analysis",  "commentary", "final",
      " to=functions.f", " to=",     "to=python", "{\"x\":1}",  "functions.f",
      " json",           "\xf0\x9f", "\xc2\xa0",  " ",          "z"};
  std::vector<TokenId> ids;
  const int pieces = static_cast<int>(random() % 30);
  for (int i = 0; i < pieces; ++i) {
    const unsigned kind = random() % 8;
    if (kind < 4) {
      ids.push_back(static_cast<TokenId>(256 + random() % 9));
    } else if (kind < 7) {
      tokenizer.encode_append(kWords[random() % kWords.size()], ids);
    } else {
      ids.push_back(static_cast<TokenId>(random() % 300) - 10);
    }
  }
  return ids;
}

TEST(Parser, SurvivesRandomStreams) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const Harmony harmony(tokenizer, {});
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<TokenId> ids = random_ids(random, *tokenizer);
    Conversation conversation = i % 2 == 0 ? with_tools({"f", "g"}) : with_tools({});
    const Transcript got = parse(harmony, conversation, ids, *tokenizer);
    EXPECT_LE(got.reasoning_tokens, static_cast<int>(ids.size()));
    if (i % 2 == 1) {
      EXPECT_TRUE(got.calls.empty());
    }
    if (HasFailure()) FAIL() << "stream " << i;
  }
}

TEST(Parser, GivesTheSameWhateverTheEventsAreCollectedIn) {  // STREAM-01 to STREAM-03
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const Harmony harmony(tokenizer, {});
  std::mt19937 random(6);
  for (int i = 0; i < 2'000; ++i) {
    const std::vector<TokenId> ids = random_ids(random, *tokenizer);
    const Conversation conversation = with_tools({"f"});
    const Transcript one_by_one = parse(harmony, conversation, ids, *tokenizer);
    for (const std::size_t group : {2u, 3u, 7u, 1000u}) {
      const auto parser = harmony.parser(conversation);
      Transcript grouped;
      for (std::size_t at = 0; at < ids.size(); at += group) {
        std::vector<ChatEvent> events;
        for (std::size_t k = at; k < std::min(at + group, ids.size()); ++k) parser->feed(ids[k], events);
        add_events(events, grouped);
      }
      std::vector<ChatEvent> events;
      parser->finish(events);
      add_events(events, grouped);
      EXPECT_EQ(grouped.reasoning, one_by_one.reasoning);
      EXPECT_EQ(grouped.content, one_by_one.content);
      EXPECT_EQ(grouped.calls, one_by_one.calls);
    }
  }
}

TEST(Parser, DoesNotCareHowTextIsCutIntoTokens) {
  // The released vocabulary's own ids against the same bytes one by one: all bytes are ids of it as well.
  const Harmony harmony(o200k(), {});
  std::vector<TokenId> byte_ids(256);
  for (int byte = 0; byte < 256; ++byte) {
    for (TokenId id = 0; id < 256; ++id) {
      if (o200k()->decode(id) == std::string(1, static_cast<char>(byte))) byte_ids[static_cast<std::size_t>(byte)] = id;
    }
  }
  const std::string text =
      "<|channel|>analysis<|message|>नमस्ते "
      "👨‍👩‍👧‍👦<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f "
      "<|constrain|>json<|message|>{\"x\":\"é日本\"}<|call|>";
  const std::vector<TokenId> ids = o200k()->encode_with_specials(text);
  std::vector<TokenId> cut;
  for (const TokenId id : ids) {
    if (o200k()->is_special(id)) {
      cut.push_back(id);
      continue;
    }
    for (const char c : o200k()->decode(id)) cut.push_back(byte_ids[static_cast<unsigned char>(c)]);
  }
  ASSERT_GT(cut.size(), ids.size());
  const Transcript whole = parse_ids(ids);
  const Transcript bytes = parse_ids(cut);
  EXPECT_EQ(whole.reasoning, "नमस्ते 👨‍👩‍👧‍👦");
  EXPECT_EQ(bytes.reasoning, whole.reasoning);
  EXPECT_EQ(bytes.calls, whole.calls);
}

TEST(Parser, TakesTheSameTimePerIdHoweverLongTheTextIs) {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const Harmony harmony(tokenizer, {});
  const auto seconds = [&](std::string_view head, int ids) {
    const auto parser = harmony.parser(with_tools({"f"}));
    std::vector<ChatEvent> events;
    const auto from = std::chrono::steady_clock::now();
    for (const TokenId id : tokenizer->encode_with_specials(head)) parser->feed(id, events);
    for (int i = 0; i < ids; ++i) {
      events.clear();
      parser->feed('a' + i % 26, events);
    }
    parser->finish(events);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  for (const char* head :
       {"<|channel|>final<|message|>", "<|message|>", "", "<|channel|>commentary to=functions.f<|message|>",
        "<|channel|>final to=functions.f<|message|>"}) {
    seconds(head, 1'000);
    const double small = seconds(head, 20'000);
    const double large = seconds(head, 200'000);
    // Linear is 10, quadratic 100; the machine may be busy.
    EXPECT_LT(large, 50 * small + 0.05) << head;
  }
}

}  // namespace
}  // namespace rose::harmony
