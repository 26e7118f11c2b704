#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"

namespace rose {
namespace {

std::uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

}  // namespace

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  arena_.reserve(bytes);
  begin_.reserve(tokens + 1);
  grow(std::bit_ceil(2 * tokens + 2));
}

TokenId TokenTable::add(std::string_view bytes) {
  CHECK(!bytes.empty());
  if (2 * (findable_ + 1) > slots_.size()) grow(std::max<std::size_t>(16, 2 * slots_.size()));
  const std::uint64_t hash = hash_of(bytes);
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  for (; slots_[i].id != kNone; i = (i + 1) & mask) {
    if (slots_[i].tag == tag_of(hash) && this->bytes(slots_[i].id) == bytes) return slots_[i].id;
  }
  const TokenId id = size();
  slots_[i] = {tag_of(hash), id};
  ++findable_;
  if (bytes.size() == 2) {
    pairs_[std::size_t{static_cast<unsigned char>(bytes[0])} << 8 | static_cast<unsigned char>(bytes[1])] = id;
  }
  bytes_max_ = std::max(bytes_max_, bytes.size());
  append(bytes);
  return kNone;
}

void TokenTable::add_hidden(std::string_view bytes) { append(bytes); }

void TokenTable::append(std::string_view bytes) {
  CHECK(bytes.size() <= std::numeric_limits<std::uint32_t>::max() - arena_.size());
  arena_ += bytes;
  begin_.push_back(static_cast<std::uint32_t>(arena_.size()));
}

TokenId TokenTable::find(std::string_view bytes) const {
  if (bytes.size() > bytes_max_ || bytes.empty()) return kNone;
  const std::uint64_t hash = hash_of(bytes);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask; slots_[i].id != kNone; i = (i + 1) & mask) {
    if (slots_[i].tag == tag_of(hash) && this->bytes(slots_[i].id) == bytes) return slots_[i].id;
  }
  return kNone;
}

void TokenTable::grow(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    std::size_t i = hash_of(bytes(slot.id)) & mask;
    while (slots_[i].id != kNone) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

}  // namespace rose
