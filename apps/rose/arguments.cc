#include "arguments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace rose {
namespace {

struct Rename {
  const char* from;
  const char* to;
};
constexpr std::array kRenamed = {Rename{"-tp", "--tp"}, Rename{"-ep", "--ep"},
                                 Rename{"--enable-prefix-caching", "--prefix-cache"},
                                 Rename{"--no-enable-prefix-caching", "--no-prefix-cache"}};

struct Ignored {
  const char* name;
  bool takes_value;
};
constexpr std::array kIgnored = {Ignored{"--trust-remote-code", false},
                                 Ignored{"--enforce-eager", false},
                                 Ignored{"--async-scheduling", false},
                                 Ignored{"--enable-auto-tool-choice", false},
                                 Ignored{"--disable-log-requests", false},
                                 Ignored{"--enable-chunked-prefill", false},
                                 Ignored{"--dtype", true},
                                 Ignored{"--tool-call-parser", true},
                                 Ignored{"--reasoning-parser", true}};

}  // namespace

Arguments normalized(const std::vector<std::string>& words) {
  Arguments out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {  // what follows is not ours to read
      out.words.insert(out.words.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const std::size_t equals = words[i].find('=');
    std::string name = words[i].substr(0, equals);
    const std::string rest = equals == std::string::npos ? "" : words[i].substr(equals);
    if (name.rfind("--", 0) == 0) std::replace(name.begin(), name.end(), '_', '-');
    const auto renamed =
        std::find_if(kRenamed.begin(), kRenamed.end(), [&](const Rename& r) { return name == r.from; });
    if (renamed != kRenamed.end()) name = renamed->to;
    const auto ignored =
        std::find_if(kIgnored.begin(), kIgnored.end(), [&](const Ignored& f) { return name == f.name; });
    if (ignored == kIgnored.end()) {
      out.words.push_back(name + rest);
      continue;
    }
    out.ignored.push_back(name);
    if (ignored->takes_value && rest.empty()) ++i;
  }
  return out;
}

std::string token_count(const std::string& text) {
  if (text == "auto") return "0";
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string suffix(end, text.data() + text.size());
  std::uint64_t unit = 0;
  if (suffix.empty()) unit = 1;
  if (suffix == "K" || suffix == "k") unit = 1024;
  if (suffix == "M" || suffix == "m") unit = 1024 * 1024;
  if (status != std::errc() || unit == 0 || number > (std::uint64_t{1} << 40) / unit) return "";
  return std::to_string(number * unit);
}

}  // namespace rose
