#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/check.h"

namespace rose {
namespace {

// Up to here the quadratic scan beats the heap: everything stays in one cache line after another.
constexpr std::size_t kScanBytesMax = 64;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

void MergeTable::reserve(std::size_t merges) {
  CHECK(size_ == 0);
  slots_.assign(std::bit_ceil(2 * merges + 2), Slot{});
}

std::size_t MergeTable::first_slot(std::uint64_t pair) const {
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;  // Fibonacci hashing: the upper bits depend on all bits
  return ((pair ^ pair >> 29) * kGoldenRatio >> 32) & (slots_.size() - 1);
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t i = first_slot(pair);
  while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & (slots_.size() - 1);
  return i;
}

void MergeTable::prefetch(TokenId left, TokenId right) const {
  __builtin_prefetch(&slots_[first_slot(pair_key(left, right))]);
}

bool MergeTable::add(TokenId left, TokenId right, TokenId merged) {
  CHECK(2 * (size_ + 1) <= slots_.size(), "reserve() first");
  const std::uint64_t pair = pair_key(left, right);
  Slot& slot = slots_[slot_of(pair)];
  if (slot.pair == pair) return false;
  slot = {pair, {static_cast<std::uint32_t>(size_), merged}};
  ++size_;
  return true;
}

PairRank MergeTable::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return {};
  return slots_[slot_of(pair_key(left, right))].rank;  // of an empty slot: no rank
}

Bpe::Bpe(TokenTable tokens, bool whole_piece_first)
    : tokens_(std::move(tokens)), whole_piece_first_(whole_piece_first) {
  set_byte_ids();
}

Bpe::Bpe(TokenTable tokens, MergeTable merges, bool whole_piece_first)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), by_list_(true), whole_piece_first_(whole_piece_first) {
  set_byte_ids();
}

void Bpe::set_byte_ids() {
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = tokens_.find({&byte, 1});
    CHECK(byte_ids_[b] != TokenTable::kNone, "no token for byte {}: the loader checks this", b);
  }
}

PairRank Bpe::pair_rank(TokenId left, TokenId right, std::string_view both) const {
  if (by_list_) return merges_.find(left, right);
  const TokenId id = tokens_.find(both);
  if (id == TokenTable::kNone) return {};
  return {static_cast<std::uint32_t>(id), id};
}

void Bpe::encode_piece(std::string_view piece, std::vector<TokenId>& out, std::uint64_t* steps,
                       MergeMethod method) const {
  CHECK(piece.size() < std::numeric_limits<std::uint32_t>::max());
  if (piece.size() == 1) {
    out.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.empty()) return;
  if (whole_piece_first_) {
    const TokenId id = tokens_.find(piece);
    if (id != TokenTable::kNone) {
      out.push_back(id);
      return;
    }
  }
  const bool scan = method == MergeMethod::kScan || (method == MergeMethod::kByLength && piece.size() <= kScanBytesMax);
  const std::uint64_t taken = scan ? merge_by_scan(piece, out) : merge_by_heap(piece, out);
  if (steps != nullptr) *steps += taken;
}

std::uint64_t Bpe::merge_by_scan(std::string_view piece, std::vector<TokenId>& out) const {
  struct Part {
    std::uint32_t begin;
    TokenId id;
    PairRank pair;  // with the part after it
  };
  std::uint64_t steps = 0;
  Part on_stack[kScanBytesMax + 1];
  std::vector<Part> on_heap(piece.size() > kScanBytesMax ? piece.size() + 1 : 0);
  Part* parts = on_heap.empty() ? on_stack : on_heap.data();
  std::size_t count = piece.size();
  for (std::size_t i = 0; i <= count; ++i) {
    parts[i] = {static_cast<std::uint32_t>(i), i < count ? byte_ids_[static_cast<unsigned char>(piece[i])] : 0, {}};
  }
  // parts[count] marks the end, so that part i is always piece[parts[i].begin, parts[i + 1].begin).
  const auto set_pair = [&](std::size_t i) {
    ++steps;
    parts[i].pair = {};
    if (i + 1 < count) {
      const std::uint32_t begin = parts[i].begin;
      parts[i].pair = pair_rank(parts[i].id, parts[i + 1].id, piece.substr(begin, parts[i + 2].begin - begin));
    }
  };
  for (std::size_t i = 0; i < count; ++i) set_pair(i);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (parts[i].pair.rank < parts[best].pair.rank) best = i;
    }
    steps += count;
    if (parts[best].pair.rank == PairRank::kNone) break;
    parts[best].id = parts[best].pair.merged;
    std::copy(parts + best + 2, parts + count + 1, parts + best + 1);
    --count;
    set_pair(best);
    if (best > 0) set_pair(best - 1);
  }
  for (std::size_t i = 0; i < count; ++i) out.push_back(parts[i].id);
  return steps;
}

// Parts form a linked list over the positions of their first bytes. The heap holds (rank, position) of every pair that
// was ever formed; an entry counts only if the pair now at that position still has that rank. A pair at one position
// only ever grows, so a rank that has gone does not come back.
std::uint64_t Bpe::merge_by_heap(std::string_view piece, std::vector<TokenId>& out) const {
  struct Part {
    TokenId id;
    std::uint32_t next;  // position of the part after it; the piece's size at the end
    std::uint32_t previous;
    PairRank pair;  // with the part after it
  };
  std::uint64_t steps = 0;
  const auto size = static_cast<std::uint32_t>(piece.size());
  std::vector<Part> parts(size);
  std::vector<std::uint64_t> heap;  // rank << 32 | position, the smallest on top
  heap.reserve(size + size / 2);
  const auto set_pair = [&](std::uint32_t i) {
    ++steps;
    Part& part = parts[i];
    part.pair = {};
    if (part.next == size) return false;
    const Part& right = parts[part.next];
    part.pair = pair_rank(part.id, right.id, piece.substr(i, right.next - i));
    return part.pair.rank != PairRank::kNone;
  };
  const auto entry = [&](std::uint32_t i) { return std::uint64_t{parts[i].pair.rank} << 32 | i; };
  for (std::uint32_t i = 0; i < size; ++i) {
    parts[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i + 1, i - 1, {}};
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    if (set_pair(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto push = [&](std::uint32_t i) {
    if (!set_pair(i)) return;
    heap.push_back(entry(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const std::uint64_t top = heap.back();
    heap.pop_back();
    ++steps;
    const auto i = static_cast<std::uint32_t>(top);
    Part& part = parts[i];
    if (part.pair.rank != static_cast<std::uint32_t>(top >> 32)) continue;
    Part& right = parts[part.next];
    part.id = part.pair.merged;
    part.next = right.next;
    right.pair = {};  // gone: its entries no longer count
    if (part.next != size) parts[part.next].previous = i;
    push(i);
    if (i > 0) push(part.previous);
  }
  for (std::uint32_t i = 0; i < size; i = parts[i].next) out.push_back(parts[i].id);
  return steps;
}

}  // namespace rose
