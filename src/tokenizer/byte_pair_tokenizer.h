// The one Tokenizer: o200k splitting, byte-pair merges, special tokens beside them. The loaders build it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

namespace rose {

// Names of ids that text never becomes. An id may have several names; its first one is how it decodes.
struct NamedToken {
  TokenId id;
  std::string text;
  bool special = true;  // false: an added token that is not a control token
};

class BytePairTokenizer final : public Tokenizer {
 public:
  // `bpe` holds the bytes of every id, those of named tokens as hidden ones.
  BytePairTokenizer(Bpe bpe, std::vector<NamedToken> named);

  std::vector<TokenId> encode(std::string_view text) const override;
  void encode_append(std::string_view text, std::vector<TokenId>& out) const override;
  std::vector<TokenId> encode_with_specials(std::string_view text) const override;
  std::string_view decode(TokenId id) const override { return bpe_.tokens().bytes(id); }
  std::optional<TokenId> special(std::string_view text) const override;
  bool is_special(TokenId id) const override;
  int vocabulary() const override { return bpe_.tokens().size(); }
  int token_bytes_max() const override { return bpe_.tokens().bytes_max(); }

 private:
  // The longest name at text[pos], or null.
  const NamedToken* name_at(std::string_view text, std::size_t pos) const;

  Bpe bpe_;
  std::vector<NamedToken> named_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // into named_
  std::vector<std::size_t> name_lengths_;                      // distinct, longest first
  std::string shared_prefix_;                                  // of all names: "<|"
  std::vector<bool> special_;                                  // by id
};

}  // namespace rose
