// The reference crate's parser: one that refuses what the format does not allow, with the crate's rules, quirks and
// error texts (openai-harmony 0.0.8, strict mode; spec: harmony.md 3.3). For tools and tests; what a model writes goes
// through Parser (parser.h), which never fails.
//
// One difference: deltas come as soon as a character is known, where the crate may lag by an invalid sequence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/harmony/message.h"
#include "chat/harmony/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace rose::harmony {

class StrictParser {
 public:
  // `role`: whose header is already open (the prompt ended in <|start|>ROLE); none: a <|start|> comes first.
  // `tokenizer` must outlive the parser.
  StrictParser(const Tokenizer& tokenizer, const SpecialTokens& tokens, std::optional<Role> role);

  // Errors: 400, the text says what was unexpected. The parser then waits for a <|start|>.
  Result<Ok> feed(TokenId id);
  // No more ids: closes an open message. Errors: 400 if a header is open.
  Result<Ok> finish();

  // Complete ones. Their content is text.
  const std::vector<HarmonyMessage>& messages() const { return messages_; }
  // A header has begun and its <|message|> has not come.
  bool header_open() const { return state_ == State::kHeader; }
  // Text that the last fed id (or finish) added to the open message.
  const std::string& last_delta() const { return delta_; }
  // Of the open message; null between messages.
  const HarmonyMessage* current() const { return state_ == State::kContent ? &open_ : nullptr; }

 private:
  enum class State { kExpectStart, kHeader, kContent };

  Result<HarmonyMessage> read_header() const;
  void content(TokenId id);
  void close();

  const Tokenizer& tokenizer_;
  SpecialTokens tokens_;
  State state_ = State::kExpectStart;
  std::optional<Role> role_;    // of the header that is open from the start
  std::string header_;          // raw bytes, special ids as their strings
  bool header_broken_ = false;  // held an id that is no token
  HarmonyMessage open_;
  Utf8Stream utf8_;
  bool broken_ = false;  // an id of the content was no token: the crate shows nothing after it
  std::string delta_;
  std::vector<HarmonyMessage> messages_;
};

}  // namespace rose::harmony
