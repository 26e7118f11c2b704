// A tokenizer whose ids are bytes, and a chat format small enough to read a scripted generation at a glance.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace rose::testing {

// Ids above the bytes.
inline constexpr TokenId kReturn = 256;    // ends the answer
inline constexpr TokenId kCall = 257;      // ends a tool call, and the answer
inline constexpr TokenId kAnalysis = 258;  // what follows is reasoning
inline constexpr TokenId kFinal = 259;     // what follows is content
inline constexpr TokenId kTool = 260;      // NAME ( ARGUMENTS until kCall
inline constexpr TokenId kForeign = 261;   // the model speaks for somebody else
inline constexpr int kVocabulary = 262;

class FakeTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> out;
    encode_append(text, out);
    return out;
  }
  void encode_append(std::string_view text, std::vector<TokenId>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  std::vector<TokenId> encode_with_specials(std::string_view text) const override { return encode(text); }
  std::string_view decode(TokenId id) const override {
    static const auto kBytes = [] {
      std::array<char, 256> bytes{};
      for (int i = 0; i < 256; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
      return bytes;
    }();
    if (id >= 0 && id < 256) return {&kBytes[static_cast<std::size_t>(id)], 1};
    return id < kVocabulary ? "<|special|>" : "";
  }
  std::optional<TokenId> special(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id >= 256; }
  int vocabulary() const override { return kVocabulary; }
  int token_bytes_max() const override { return 1; }
};

class FakeParser final : public ChatParser {
 public:
  void feed(TokenId id, std::vector<ChatEvent>& events) override {
    const std::int64_t position = position_++;
    if (id == kForeign) foreign_ = true;
    if (id >= 256) return mark(id, events);
    const auto byte = static_cast<char>(id);
    if (state_ == kAnalysis) ++reasoning_;
    if (state_ == kFinal) positions_.push_back(position);
    last_was_content_ = state_ == kFinal;
    if (state_ == kTool && !in_arguments_) {
      if (byte != '(') return void(name_ += byte);
      in_arguments_ = true;
      events.push_back({.kind = ChatEventKind::kToolCallBegin, .text = "", .call = call_, .name = name_});
      return;
    }
    std::string text;
    utf8_.feed({&byte, 1}, text);
    emit(std::move(text), events);
  }
  void finish(std::vector<ChatEvent>& events) override {
    std::string text;
    utf8_.flush(text);
    emit(std::move(text), events);
  }
  bool last_was_content() const override { return last_was_content_; }
  const std::vector<std::int64_t>& content_positions() const override { return positions_; }
  int reasoning_tokens() const override { return reasoning_; }
  bool called_tool() const override { return called_; }
  bool wants_stop() const override { return foreign_; }

 private:
  void mark(TokenId id, std::vector<ChatEvent>& events) {
    last_was_content_ = false;
    std::string text;
    utf8_.flush(text);
    emit(std::move(text), events);
    if (id == kAnalysis) ++reasoning_;
    if (id == kCall && in_arguments_) {
      events.push_back({.kind = ChatEventKind::kToolCallEnd, .text = "", .call = call_, .name = ""});
      called_ = true;
      ++call_;
    }
    in_arguments_ = false;
    name_.clear();
    state_ = id;
  }
  void emit(std::string text, std::vector<ChatEvent>& events) {
    if (text.empty()) return;
    const ChatEventKind kind = state_ == kAnalysis ? ChatEventKind::kReasoning
                               : state_ == kTool   ? ChatEventKind::kToolCallArguments
                                                   : ChatEventKind::kContent;
    events.push_back({.kind = kind, .text = std::move(text), .call = state_ == kTool ? call_ : -1, .name = ""});
  }

  Utf8Stream utf8_;
  TokenId state_ = kFinal;
  std::int64_t position_ = 0;
  std::vector<std::int64_t> positions_;
  bool in_arguments_ = false, called_ = false, foreign_ = false, last_was_content_ = false;
  std::string name_;
  int call_ = 0;
  int reasoning_ = 0;
};

// A named tool forces kTool and its name.
class FakeConstraint final : public HeaderConstraint {
 public:
  explicit FakeConstraint(std::vector<TokenId> header) : header_(std::move(header)) {}
  std::vector<TokenId> allowed_next_tokens(std::span<const TokenId> generated) const override {
    if (generated.size() >= header_.size()) return {};
    return {header_[generated.size()]};
  }

 private:
  std::vector<TokenId> header_;
};

class FakeChatFormat final : public ChatFormat {
 public:
  std::string_view name() const override { return "fake"; }
  Result<std::vector<TokenId>> render(const Conversation& conversation) const override {
    std::vector<TokenId> out;
    for (const ChatMessage& message : conversation.messages) {
      if (message.content == "unrenderable") return RequestError{400, "cannot render this", "messages[0]", "bad"};
      FakeTokenizer().encode_append(message.content + "\n", out);
    }
    return out;
  }
  std::unique_ptr<ChatParser> parser(const Conversation&) const override { return std::make_unique<FakeParser>(); }
  std::shared_ptr<const HeaderConstraint> constraint(const Conversation& conversation) const override {
    if (conversation.tool_choice.mode != ToolChoiceMode::kNamed) return nullptr;
    std::vector<TokenId> header = {kTool};
    FakeTokenizer().encode_append(conversation.tool_choice.names[0] + "(", header);
    return std::make_shared<FakeConstraint>(std::move(header));
  }
  const std::vector<TokenId>& stop_tokens() const override {
    static const std::vector<TokenId> kStops = {kReturn, kCall};
    return kStops;
  }
};

// "think|answer" as ids: kAnalysis t h i n k kFinal a n s w e r kReturn.
inline std::vector<TokenId> ids_of(std::string_view reasoning, std::string_view content) {
  std::vector<TokenId> ids;
  if (!reasoning.empty()) {
    ids.push_back(kAnalysis);
    FakeTokenizer().encode_append(reasoning, ids);
  }
  ids.push_back(kFinal);
  FakeTokenizer().encode_append(content, ids);
  ids.push_back(kReturn);
  return ids;
}

inline std::vector<TokenId> ids_of_call(std::string_view name, std::string_view arguments) {
  std::vector<TokenId> ids = {kTool};
  FakeTokenizer().encode_append(std::string(name) + "(" + std::string(arguments), ids);
  ids.push_back(kCall);
  return ids;
}

}  // namespace rose::testing
