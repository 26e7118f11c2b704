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
  // find(bytes), sooner if the guess is right.
  TokenId find_near(TokenId guess, std::string_view bytes) const {
    return !hidden(guess) && this->bytes(guess) == bytes ? guess : find(bytes);
  }
  void prefetch(std::string_view bytes) const;  // makes a find() soon after cheaper
  std::string_view bytes(TokenId id) const {    // empty if out of range
    if (id < 0 || id >= size()) return {};
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(arena_).substr(begin_[i], begin_[i + 1] - begin_[i]);
  }
  int size() const { return static_cast<int>(begin_.size()) - 1; }
  int bytes_max() const { return static_cast<int>(bytes_max_); }  // of the tokens that find() returns

 private:
  // A token of at most 8 bytes is known by `head` and `size` alone, so that most look-ups touch one cache line.
  struct Slot {
    std::uint64_t head = 0;
    std::uint32_t size = 0;
    TokenId id = kNone;
  };

  std::size_t slot_of(std::string_view bytes) const;  // where `bytes` is, or would go
  void append(std::string_view bytes, bool hidden);
  bool hidden(TokenId id) const { return id < 0 || id >= size() || hidden_[static_cast<std::size_t>(id)]; }
  void grow(std::size_t slots);

  std::string arena_;
  std::vector<std::uint32_t> begin_ = {0};  // size() + 1 offsets into arena_
  std::vector<bool> hidden_;                // by id
  std::vector<Slot> slots_;                 // open addressing, a power of two, at most half full
  std::size_t findable_ = 0;
  std::size_t bytes_max_ = 0;
  std::vector<TokenId> bytes_ = std::vector<TokenId>(1u << 8, kNone);   // the tokens of one byte
  std::vector<TokenId> pairs_ = std::vector<TokenId>(1u << 16, kNone);  // the tokens of two bytes
};

}  // namespace rose
