#include "server/openai/header_mask.h"

#include <algorithm>

namespace rose::openai {

bool HeaderMask::mask(std::span<std::int32_t> bits) {
  if (!constraint_) return false;
  const std::vector<TokenId> allowed = constraint_->allowed_next_tokens(generated_);
  if (allowed.empty()) {
    constraint_ = nullptr;
    generated_.clear();
    return false;
  }
  std::fill(bits.begin(), bits.end(), 0);
  for (const TokenId id : allowed) {
    const auto word = static_cast<std::size_t>(id) / 32;
    CHECK(id >= 0 && word < bits.size(), "token {} of a header is outside the vocabulary", id);
    bits[word] |= static_cast<std::int32_t>(1u << (static_cast<unsigned>(id) % 32));
  }
  return true;
}

void HeaderMask::advance(std::int32_t token) {
  if (constraint_) generated_.push_back(token);
}

}  // namespace rose::openai
