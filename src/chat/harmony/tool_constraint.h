// The rest of a forced call's header: behind "<|channel|>commentary to=functions" comes one of the allowed names, then
// the content type and <|message|>. Each name has one spelling in tokens, the tokenizer's own.
#pragma once

#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "chat/harmony/render.h"

namespace rose::harmony {

class ToolConstraint final : public HeaderConstraint {
 public:
  // `names`: at least one, distinct.
  ToolConstraint(const Renderer& renderer, const std::vector<std::string>& names);

  std::vector<TokenId> allowed_next_tokens(std::span<const TokenId> generated) const override;

 private:
  std::vector<std::vector<TokenId>> headers_;  // each ends with <|message|>
};

}  // namespace rose::harmony
