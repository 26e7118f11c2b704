// Splits a byte stream into complete UTF-8, holding back at most three bytes of an unfinished character. Each maximal bad
// subpart becomes one U+FFFD (Unicode 15, section 3.9).
#pragma once

#include <string>
#include <string_view>

namespace rose {

class Utf8Stream {
 public:
  void feed(std::string_view bytes, std::string& out);  // appends what is complete
  void flush(std::string& out);                         // appends U+FFFD for a held-back rest, clears it
  bool pending() const { return !held_.empty(); }

 private:
  std::string held_;
};

}  // namespace rose
