#include "chat/harmony/tool_constraint.h"

#include <algorithm>

namespace rose::harmony {

ToolConstraint::ToolConstraint(const Renderer& renderer, const std::vector<std::string>& names) {
  CHECK(!names.empty());
  for (const std::string& name : names) {
    // The split pattern always breaks before '.', so that these ids are those of the whole header.
    std::vector<TokenId> header = renderer.tokenizer().encode("." + name);
    renderer.append_channel("", "", kCallContentType, header);
    header.push_back(renderer.tokens().message);
    headers_.push_back(std::move(header));
  }
}

std::vector<TokenId> ToolConstraint::allowed_next_tokens(std::span<const TokenId> generated) const {
  std::vector<TokenId> allowed;
  for (const std::vector<TokenId>& header : headers_) {
    const std::size_t shared = std::min(header.size(), generated.size());
    if (!std::ranges::equal(std::span(header).first(shared), generated.first(shared))) continue;
    if (shared == header.size()) return {};  // <|message|> was written: the body is free
    if (std::ranges::find(allowed, header[shared]) == allowed.end()) allowed.push_back(header[shared]);
  }
  return allowed;
}

}  // namespace rose::harmony
