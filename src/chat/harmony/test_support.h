// What the tests of the harmony format share: tokenizers, golden files, and a parser's events as a whole.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "chat/harmony/special_tokens.h"
#include "tokenizer/test_files.h"

namespace rose::harmony {

// One id a byte, and the named special tokens behind them: the smallest vocabulary the format works with.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
    for (const char* name : {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>",
                             "<|call|>", "<|endoftext|>", "<|reserved_1|>"}) {
      bytes_.emplace_back(name);
    }
  }
  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    encode_append(text, ids);
    return ids;
  }
  void encode_append(std::string_view text, std::vector<TokenId>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  std::vector<TokenId> encode_with_specials(std::string_view text) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      std::size_t taken = 1;
      TokenId id = static_cast<unsigned char>(text.front());
      for (TokenId i = 256; i < vocabulary(); ++i) {
        if (!text.starts_with(decode(i))) continue;
        id = i;
        taken = decode(i).size();
      }
      ids.push_back(id);
      text.remove_prefix(taken);
    }
    return ids;
  }
  std::string_view decode(TokenId id) const override {
    return id >= 0 && id < vocabulary() ? std::string_view(bytes_[static_cast<std::size_t>(id)]) : "";
  }
  std::optional<TokenId> special(std::string_view text) const override {
    for (TokenId id = 256; id < vocabulary(); ++id) {
      if (decode(id) == text) return id;
    }
    return std::nullopt;
  }
  bool is_special(TokenId id) const override { return id >= 256 && id < vocabulary(); }
  int vocabulary() const override { return static_cast<int>(bytes_.size()); }
  int token_bytes_max() const override { return 1; }

 private:
  std::vector<std::string> bytes_;
};

inline std::shared_ptr<const Tokenizer> o200k() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      tokenizer_from_tiktoken(repository_file("tests/data/o200k_base.tiktoken"));
  return tokenizer;
}

// A case of tests/golden/harmony (format: tools/oracle/harmony_fixtures.py).
struct GoldenCase {
  std::string name;  // file: case
  std::map<std::string, std::string> fields;

  json::Value input() const { return json::parse(fields.at("input")).value(); }
  std::vector<TokenId> ids() const;
};

std::vector<GoldenCase> read_golden(const std::string& kind);
Conversation conversation_of(const json::Value& value);

// A conversation with these tools and one user message.
Conversation with_tools(const std::vector<std::string>& names);

// All that a parser said about a generation.
struct Transcript {
  struct Call {
    std::string name;
    std::string arguments;
    bool ended = false;
    bool operator==(const Call&) const = default;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool called_tool = false;
  bool wants_stop = false;
  int reasoning_tokens = 0;
  std::string content_tokens;  // bytes of the ids at content_positions
  bool operator==(const Transcript&) const = default;
};

// Adds events as a client would; the order of call events is checked.
void add_events(const std::vector<ChatEvent>& events, Transcript& transcript);
Transcript parse(const ChatFormat& format, const Conversation& conversation, const std::vector<TokenId>& ids,
                 const Tokenizer& tokenizer);

}  // namespace rose::harmony
