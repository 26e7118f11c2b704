// A chat format's header constraint as the mask that the engine asks for.
#pragma once

#include <memory>
#include <vector>

#include "chat/chat_format.h"
#include "decode/token_mask.h"

namespace rose::openai {

class HeaderMask final : public TokenMask {
 public:
  explicit HeaderMask(std::shared_ptr<const HeaderConstraint> constraint) : constraint_(std::move(constraint)) {}

  bool mask(std::span<std::int32_t> bits) override;
  void advance(std::int32_t token) override;

 private:
  std::shared_ptr<const HeaderConstraint> constraint_;  // null: the header is over
  std::vector<TokenId> generated_;
};

}  // namespace rose::openai
