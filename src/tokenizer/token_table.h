// The bytes of every token, and the way back from bytes to an id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace rose {

class TokenTable {
 public:
  static constexpr TokenId kNone = -1;

  void reserve(std::size_t tokens, std::size_t bytes);

  // Appends the token of the next id. Returns kNone, or the id that has these bytes already; then nothing is added.
  TokenId add(std::string_view bytes);
  // Appends a token that find() never returns: a special one.
  void add_hidden(std::string_view bytes);

  TokenId find(std::string_view bytes) const;  // kNone if there is none
  TokenId find_pair(unsigned char a, unsigned char b) const { return pairs_[std::size_t{a} << 8 | b]; }
  std::string_view bytes(TokenId id) const {  // empty if out of range
    if (id < 0 || id >= size()) return {};
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(arena_).substr(begin_[i], begin_[i + 1] - begin_[i]);
  }
  int size() const { return static_cast<int>(begin_.size()) - 1; }
  int bytes_max() const { return static_cast<int>(bytes_max_); }  // of the tokens that find() returns

 private:
  struct Slot {
    std::uint32_t tag;  // upper half of the hash: tells most strangers apart without touching their bytes
    TokenId id = kNone;
  };

  void append(std::string_view bytes);
  void grow(std::size_t slots);

  std::string arena_;
  std::vector<std::uint32_t> begin_ = {0};  // size() + 1 offsets into arena_
  std::vector<Slot> slots_;                 // open addressing, a power of two, at most half full
  std::size_t findable_ = 0;
  std::size_t bytes_max_ = 0;
  std::vector<TokenId> pairs_ = std::vector<TokenId>(1u << 16, kNone);  // the tokens of two bytes
};

}  // namespace rose
