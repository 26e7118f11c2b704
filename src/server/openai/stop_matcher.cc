#include "server/openai/stop_matcher.h"

#include <algorithm>

namespace rose::openai {

void StopMatcher::feed(std::string_view text, std::string& out) {
  if (matched_) return;
  if (stops_.empty()) {
    out += text;
    return;
  }
  held_ += text;
  std::size_t at = std::string::npos;
  const std::string* which = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found < at) at = found, which = &stop;
  }
  if (which != nullptr) {
    matched_ = *which;
    out.append(held_, 0, at + (include_ ? which->size() : 0));
    held_.clear();
    return;
  }
  std::size_t keep = 0;  // longest end of held_ that begins a stop string
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size) {
      if (held_.compare(held_.size() - size, size, stop, 0, size) == 0) keep = size;
    }
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

void StopMatcher::flush(std::string& out) {
  if (!matched_) out += held_;
  held_.clear();
}

}  // namespace rose::openai
