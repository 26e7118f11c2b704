// Byte-pair encoding of one piece of text.
//
// A piece that is a token is that token. Otherwise start from single bytes and, again and again, merge the adjacent
// pair of lowest rank (the leftmost of equals), until no adjacent pair has a rank. Ranks come in two forms:
//   by concatenation (.tiktoken): a pair's rank is the id of the token that its bytes make together;
//   by list (tokenizer.json): a pair's rank is its position among the file's merges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer.h"

namespace rose {

struct PairRank {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t rank = kNone;
  TokenId merged = TokenTable::kNone;
};

// (left id, right id) -> rank and merged id.
class MergeTable {
 public:
  void reserve(std::size_t merges);                       // before the first add
  bool add(TokenId left, TokenId right, TokenId merged);  // the next rank; false if the pair is there already
  PairRank find(TokenId left, TokenId right) const;
  void prefetch(TokenId left, TokenId right) const;  // makes an add() or find() soon after cheaper
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    PairRank rank;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  std::size_t first_slot(std::uint64_t pair) const;
  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t size_ = 0;
};

// Which way a piece is merged: by its length, or one of the two forced, for tests.
enum class MergeMethod { kByLength, kScan, kHeap };

class Bpe {
 public:
  // `whole_piece_first`: a piece that is a token is taken at once, whether merges lead to it or not.
  // Ranks by concatenation.
  explicit Bpe(TokenTable tokens, bool whole_piece_first = true);
  // Ranks by list.
  Bpe(TokenTable tokens, MergeTable merges, bool whole_piece_first);

  const TokenTable& tokens() const { return tokens_; }

  // Appends the ids of `piece` (under 4 GiB). O(n log n): short pieces are scanned for the best pair, long ones keep
  // the pairs in a heap. `steps`, if given, grows by the pairs looked at: a deterministic measure of the work.
  void encode_piece(std::string_view piece, std::vector<TokenId>& out, std::uint64_t* steps = nullptr,
                    MergeMethod method = MergeMethod::kByLength) const;

 private:
  PairRank pair_rank(TokenId left, TokenId right, std::string_view both) const;
  void set_byte_ids();
  std::uint64_t merge_by_scan(std::string_view piece, std::vector<TokenId>& out) const;
  std::uint64_t merge_by_heap(std::string_view piece, std::vector<TokenId>& out) const;

  TokenTable tokens_;
  MergeTable merges_;
  bool by_list_ = false;
  bool whole_piece_first_;
  TokenId byte_ids_[256];
};

}  // namespace rose
