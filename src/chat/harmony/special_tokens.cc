#include "chat/harmony/special_tokens.h"

#include "base/result.h"

namespace rose::harmony {

SpecialTokens find_special_tokens(const Tokenizer& tokenizer) {
  const auto required = [&](std::string_view text) {
    const std::optional<TokenId> id = tokenizer.special(text);
    if (!id)
      throw StartError(fmt::format("the tokenizer has no special token {}, which the harmony format needs", text));
    return *id;
  };
  return {.start = required("<|start|>"),
          .end = required("<|end|>"),
          .message = required("<|message|>"),
          .channel = required(kChannelText),
          .constrain = required(kConstrainText),
          .turn_end = required("<|return|>"),
          .call = required("<|call|>"),
          .text_end = tokenizer.special("<|endoftext|>").value_or(-1)};
}

}  // namespace rose::harmony
