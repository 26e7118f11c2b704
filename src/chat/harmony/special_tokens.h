// Harmony's special tokens, looked up by name so that any vocabulary with the same strings works through the same code
// (spec: harmony.md 1.2).
#pragma once

#include "tokenizer/tokenizer.h"

namespace rose::harmony {

struct SpecialTokens {
  TokenId start;
  TokenId end;      // of a message; not of a generation
  TokenId message;  // header over, content follows
  TokenId channel;
  TokenId constrain;  // content type follows
  TokenId turn_end;   // <|return|>
  TokenId call;
  TokenId text_end;  // <|endoftext|>, -1 where the vocabulary has none
};

inline constexpr std::string_view kConstrainText = "<|constrain|>";
inline constexpr std::string_view kChannelText = "<|channel|>";

// Throws StartError naming the missing token.
SpecialTokens find_special_tokens(const Tokenizer& tokenizer);

}  // namespace rose::harmony
