// The name of a page's content: its tokens and everything before them.
//
//   hash(page 0) = xxh3_128(root, tokens of page 0);   hash(page i) = xxh3_128(hash(page i - 1), tokens of page i)
//
// The root stands for whatever else must be equal before a page may be shared: the cache salt of the request, and a
// secret of this start, so that equal hashes cannot be prepared from outside. A hit compares the tokens as well.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace rose {

struct PageHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const PageHash&, const PageHash&) = default;
};

PageHash root_hash(std::uint64_t secret, std::string_view salt);
PageHash page_hash(const PageHash& parent, std::span<const std::int32_t> tokens);

}  // namespace rose

template <>
struct std::hash<rose::PageHash> {
  std::size_t operator()(const rose::PageHash& hash) const noexcept { return static_cast<std::size_t>(hash.low); }
};
