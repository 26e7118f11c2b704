// Any ids, any tools, any start: no crash, deltas that are valid UTF-8, calls that begin once and end at most once.
#include <cstdint>

#include "chat/harmony/harmony.h"
#include "chat/harmony/strict_parser.h"
#include "tokenizer/utf8.h"

namespace rose::harmony {
namespace {

class FuzzTokenizer final : public Tokenizer {
 public:
  FuzzTokenizer() {
    for (int i = 0; i < 200; ++i) bytes_.emplace_back(1, static_cast<char>(i < 128 ? i : i + 56));
    for (const char* word : {"assistant", "user", "tool", "analysis", "commentary", "final", " to=", "functions.f",
                             "to=functions.g", "python", " json", "{\"x\":", "}", "\xf0\x9f", "\xc2\xa0"}) {
      bytes_.emplace_back(word);
    }
    specials_from_ = static_cast<TokenId>(bytes_.size());
    for (const char* name : {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>",
                             "<|call|>", "<|endoftext|>", "<|reserved_1|>"}) {
      bytes_.emplace_back(name);
    }
  }
  std::vector<TokenId> encode(std::string_view) const override { return {}; }
  void encode_append(std::string_view, std::vector<TokenId>&) const override {}
  std::vector<TokenId> encode_with_specials(std::string_view) const override { return {}; }
  std::string_view decode(TokenId id) const override {
    return id >= 0 && id < vocabulary() ? std::string_view(bytes_[static_cast<std::size_t>(id)]) : "";
  }
  std::optional<TokenId> special(std::string_view text) const override {
    for (TokenId id = specials_from_; id < vocabulary(); ++id) {
      if (decode(id) == text) return id;
    }
    return std::nullopt;
  }
  bool is_special(TokenId id) const override { return id >= specials_from_ && id < vocabulary(); }
  int vocabulary() const override { return static_cast<int>(bytes_.size()); }
  int token_bytes_max() const override { return 14; }

 private:
  std::vector<std::string> bytes_;
  TokenId specials_from_ = 0;
};

void check_events(const std::vector<ChatEvent>& events) {
  int calls = 0;
  bool open = false;
  for (const ChatEvent& event : events) {
    Utf8Stream stream;
    std::string valid;
    stream.feed(event.text, valid);
    CHECK(valid == event.text && !stream.pending(), "a delta is no complete UTF-8");
    switch (event.kind) {
      case ChatEventKind::kToolCallBegin:
        CHECK(event.call == calls && !event.name.empty());
        ++calls;
        open = true;
        break;
      case ChatEventKind::kToolCallArguments:
        CHECK(open && event.call == calls - 1);
        break;
      case ChatEventKind::kToolCallEnd:
        CHECK(open && event.call == calls - 1);
        open = false;
        break;
      default:
        CHECK(event.call == -1);
    }
  }
}

void fuzz(const std::uint8_t* bytes, std::size_t size) {
  static const auto tokenizer = std::make_shared<FuzzTokenizer>();
  static const Harmony harmony(tokenizer, {});
  if (size < 1) return;
  Conversation conversation;
  conversation.messages.push_back({.role = Role::kAssistant, .content = "a"});
  if ((bytes[0] & 1) != 0) conversation.tools = {{.name = "f"}, {.name = "g"}};
  if ((bytes[0] & 2) != 0) conversation.continue_final_message = true;
  if ((bytes[0] & 5) == 5) conversation.tool_choice = {ToolChoiceMode::kNamed, {"g"}};
  if ((bytes[0] & 9) == 9) conversation.tool_choice = {ToolChoiceMode::kRequired, {}};
  const auto parser = harmony.parser(conversation);
  StrictParser strict(*tokenizer, find_special_tokens(*tokenizer), Role::kAssistant);
  std::vector<ChatEvent> events;
  for (std::size_t i = 1; i < size; ++i) {
    parser->feed(bytes[i], events);
    (void)strict.feed(bytes[i]);
  }
  parser->finish(events);
  (void)strict.finish();
  check_events(events);
  CHECK(parser->reasoning_tokens() < static_cast<int>(size));
}

}  // namespace
}  // namespace rose::harmony

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  rose::harmony::fuzz(bytes, size);
  return 0;
}
