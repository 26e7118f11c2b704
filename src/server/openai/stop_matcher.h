// Finds stop strings in text that arrives in pieces, and never lets out a byte that may turn out to belong to one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rose::openai {

class StopMatcher {
 public:
  // `include`: the matched string stays in the text (vLLM's include_stop_str_in_output).
  StopMatcher(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {}

  // Appends to `out` what can be shown. After a match nothing more comes out.
  void feed(std::string_view text, std::string& out);
  // The text is over: what was held back is no stop string.
  void flush(std::string& out);

  // The string that matched: of the earliest match, the first in the caller's order.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace rose::openai
