#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace rose::http {

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data());
  return out;
}

void ApiKeys::add(std::string_view key) { digests_.push_back(digest(key)); }

bool ApiKeys::accept(std::string_view key) const {
  const Digest given = digest(key);
  int matches = 0;
  for (const Digest& known : digests_) matches |= CRYPTO_memcmp(known.data(), given.data(), known.size()) == 0 ? 1 : 0;
  return matches != 0;
}

}  // namespace rose::http
