#include "tokenizer/byte_pair_tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "tokenizer/o200k/split.h"

namespace rose {

BytePairTokenizer::BytePairTokenizer(Bpe bpe, std::vector<NamedToken> named)
    : bpe_(std::move(bpe)), named_(std::move(named)), special_(static_cast<std::size_t>(bpe_.tokens().size())) {
  if (!named_.empty()) shared_prefix_ = named_[0].text;
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const std::string& text = named_[i].text;
    CHECK(by_name_.emplace(text, i).second, "two tokens named {}", text);
    const auto differ = std::mismatch(shared_prefix_.begin(), shared_prefix_.end(), text.begin(), text.end());
    shared_prefix_.erase(differ.first, shared_prefix_.end());
    name_lengths_.push_back(text.size());
    if (named_[i].special) special_.at(static_cast<std::size_t>(named_[i].id)) = true;
  }
  std::sort(name_lengths_.begin(), name_lengths_.end(), std::greater<>{});
  name_lengths_.erase(std::unique(name_lengths_.begin(), name_lengths_.end()), name_lengths_.end());
}

std::vector<TokenId> BytePairTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 1);  // English and code have 4 to 5 bytes a token
  encode_append(text, out);
  return out;
}

void BytePairTokenizer::encode_append(std::string_view text, std::vector<TokenId>& out) const {
  o200k::Splitter splitter(text);
  for (std::string_view piece; splitter.next(piece);) bpe_.encode_piece(piece, out);
}

const NamedToken* BytePairTokenizer::name_at(std::string_view text, std::size_t pos) const {
  for (const std::size_t length : name_lengths_) {
    if (length > text.size() - pos) continue;
    const auto found = by_name_.find(text.substr(pos, length));
    if (found != by_name_.end()) return &named_[found->second];
  }
  return nullptr;
}

std::vector<TokenId> BytePairTokenizer::encode_with_specials(std::string_view text) const {
  std::vector<TokenId> out;
  std::size_t begin = 0;  // of the ordinary text not yet encoded
  std::size_t pos = named_.empty() ? std::string_view::npos : text.find(shared_prefix_);
  while (pos < text.size()) {
    const NamedToken* name = name_at(text, pos);
    if (name != nullptr) {
      encode_append(text.substr(begin, pos - begin), out);
      out.push_back(name->id);
      begin = pos + name->text.size();
    }
    pos = text.find(shared_prefix_, name != nullptr ? begin : pos + 1);
  }
  encode_append(text.substr(begin), out);
  return out;
}

std::optional<TokenId> BytePairTokenizer::special(std::string_view text) const {
  const auto found = by_name_.find(text);
  if (found == by_name_.end()) return std::nullopt;
  return named_[found->second].id;
}

bool BytePairTokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocabulary() && special_[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode_all(const std::vector<TokenId>& ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes += decode(id);
  return bytes;
}

}  // namespace rose
