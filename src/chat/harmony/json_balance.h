// Whether the text so far is one whole JSON object or array, without keeping it: brackets are counted outside strings.
// Text that balances and is still no JSON counts as whole; nobody is helped by telling the two apart.
#pragma once

#include <cstdint>
#include <string_view>

namespace rose::harmony {

class JsonBalance {
 public:
  void feed(std::string_view text) {
    for (const char c : text) {
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
        continue;
      }
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
      if (blank_ && c != '{' && c != '[') broken_ = true;
      if (!blank_ && depth_ == 0) broken_ = true;  // more after the end
      blank_ = false;
      if (c == '"') in_string_ = true;
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') --depth_;
    }
  }
  bool blank() const { return blank_; }
  bool complete() const { return !blank_ && !broken_ && depth_ == 0 && !in_string_; }

 private:
  std::int64_t depth_ = 0;
  bool blank_ = true;
  bool broken_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace rose::harmony
