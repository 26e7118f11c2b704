#include "kv/page_hash.h"

#include <xxhash.h>

namespace rose {

PageHash root_hash(std::uint64_t secret, std::string_view salt) {
  const XXH128_hash_t h = XXH3_128bits_withSeed(salt.data(), salt.size(), secret);
  return {h.low64, h.high64};
}

PageHash page_hash(const PageHash& parent, std::span<const std::int32_t> tokens) {
  // Both halves of the parent reach the result: one as the seed, the other by a bijection of it.
  const XXH128_hash_t h = XXH3_128bits_withSeed(tokens.data(), tokens.size_bytes(), parent.low);
  return {h.low64 ^ parent.high, h.high64 + (parent.high * 0x9e3779b97f4a7c15ull)};
}

}  // namespace rose
