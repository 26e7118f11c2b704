#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"

namespace rose {
namespace {

constexpr std::size_t kHeadBytes = 8;

template <class Word>
std::uint64_t load(const char* p) {
  Word word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The first 8 bytes; of a shorter token all bytes, so that head and size tell them apart.
std::uint64_t head_of(std::string_view bytes) {
  const char* p = bytes.data();
  const std::size_t size = bytes.size();
  if (size >= kHeadBytes) return load<std::uint64_t>(p);
  if (size >= 4) return load<std::uint32_t>(p + size - 4) << 32 | load<std::uint32_t>(p);
  return load<std::uint8_t>(p + size - 1) << 16 | load<std::uint8_t>(p + size / 2) << 8 | load<std::uint8_t>(p);
}

std::uint64_t hash_of(std::string_view bytes, std::uint64_t head) {
  if (bytes.size() > kHeadBytes) return XXH3_64bits(bytes.data(), bytes.size());
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;
  const std::uint64_t mixed = (head ^ head >> 32 ^ bytes.size()) * kGoldenRatio;
  return mixed ^ mixed >> 32;
}

std::size_t byte_at(std::string_view bytes, std::size_t i) { return static_cast<unsigned char>(bytes[i]); }

}  // namespace

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  arena_.reserve(bytes);
  begin_.reserve(tokens + 1);
  grow(std::bit_ceil(2 * tokens + 2));
}

TokenId TokenTable::add(std::string_view bytes) {
  CHECK(!bytes.empty());
  if (2 * (findable_ + 1) > slots_.size()) grow(std::max<std::size_t>(16, 2 * slots_.size()));
  Slot& slot = slots_[slot_of(bytes)];
  if (slot.id != kNone) return slot.id;
  const TokenId id = size();
  slot = {head_of(bytes), static_cast<std::uint32_t>(bytes.size()), id};
  ++findable_;
  if (bytes.size() == 1) bytes_[byte_at(bytes, 0)] = id;
  if (bytes.size() == 2) pairs_[byte_at(bytes, 0) << 8 | byte_at(bytes, 1)] = id;
  bytes_max_ = std::max(bytes_max_, bytes.size());
  append(bytes, false);
  return kNone;
}

void TokenTable::add_hidden(std::string_view bytes) { append(bytes, true); }

void TokenTable::append(std::string_view bytes, bool hidden) {
  CHECK(bytes.size() <= std::numeric_limits<std::uint32_t>::max() - arena_.size());
  arena_ += bytes;
  begin_.push_back(static_cast<std::uint32_t>(arena_.size()));
  hidden_.push_back(hidden);
}

TokenId TokenTable::find(std::string_view bytes) const {
  if (bytes.size() > bytes_max_ || bytes.empty()) return kNone;
  if (bytes.size() == 1) return bytes_[byte_at(bytes, 0)];
  if (bytes.size() == 2) return pairs_[byte_at(bytes, 0) << 8 | byte_at(bytes, 1)];
  return slots_[slot_of(bytes)].id;
}

void TokenTable::prefetch(std::string_view bytes) const {
  if (bytes.size() <= 2 || bytes.size() > bytes_max_) return;
  __builtin_prefetch(&slots_[hash_of(bytes, head_of(bytes)) & (slots_.size() - 1)]);
}

std::size_t TokenTable::slot_of(std::string_view bytes) const {
  const std::uint64_t head = head_of(bytes);
  const std::size_t mask = slots_.size() - 1;
  const auto is_here = [&](const Slot& slot) {
    return slot.head == head && slot.size == bytes.size() &&
           (bytes.size() <= kHeadBytes || this->bytes(slot.id) == bytes);
  };
  std::size_t i = hash_of(bytes, head) & mask;
  while (slots_[i].id != kNone && !is_here(slots_[i])) i = (i + 1) & mask;
  return i;
}

void TokenTable::grow(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id != kNone) slots_[slot_of(bytes(slot.id))] = slot;
  }
}

}  // namespace rose
