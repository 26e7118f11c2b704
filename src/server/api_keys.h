// The keys that open the API. Digests are kept and compared, never the keys, and always all of them: the time a
// comparison takes says nothing about where a guess was wrong.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace rose::http {

class ApiKeys {
 public:
  void add(std::string_view key);
  bool required() const { return !digests_.empty(); }
  bool accept(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view key);
  std::vector<Digest> digests_;
};

}  // namespace rose::http
