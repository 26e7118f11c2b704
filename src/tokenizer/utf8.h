// UTF-8 by the byte: one character at a time, and a stream that never cuts one (Unicode 15, section 3.9).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rose {

// The character at the front of some bytes, or the reason why there is none.
struct Utf8Step {
  char32_t code = 0;
  int bytes = 0;  // of the character; if not valid, of its maximal subpart (1 to 3)
  bool valid = false;
  bool unfinished = false;  // not valid only because the bytes end: more could complete it
};

// `bytes` is not empty.
Utf8Step utf8_step(std::string_view bytes);

// Splits a byte stream into complete UTF-8, holding back at most three bytes of an unfinished character. Each maximal
// bad subpart becomes one U+FFFD. What comes out does not depend on how the stream was cut into feeds.
class Utf8Stream {
 public:
  void feed(std::string_view bytes, std::string& out);  // appends what is complete
  void flush(std::string& out);                         // appends U+FFFD for a held-back rest, clears it
  bool pending() const { return !held_.empty(); }

 private:
  std::string held_;
};

// All of `bytes` through such a stream.
std::string valid_utf8(std::string_view bytes);

}  // namespace rose
