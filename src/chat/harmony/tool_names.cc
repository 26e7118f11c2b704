#include "chat/harmony/tool_names.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "chat/harmony/builtin_tools.h"

namespace rose::harmony {
namespace {

constexpr std::string_view kFunctions = "functions.";
constexpr std::size_t kNameBytesMax = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// The identifier a model tends to turn a name into: space, '-' and '.' become '_', other symbols go, a leading digit
// gets a '_'.
std::string identifier(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (is_word(c)) {
      out += c;
    } else if (c == ' ' || c == '-' || c == '.') {
      out += '_';
    }
  }
  if (!out.empty() && is_digit(out.front())) out.insert(out.begin(), '_');
  return out;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<std::string> declared(const std::vector<std::string>& names, std::string_view name) {
  if (contains(names, name)) return std::string(name);
  const std::string wanted = identifier(name);
  if (wanted.empty()) return std::nullopt;
  std::optional<std::string> found;
  for (const std::string& candidate : names) {
    if (identifier(candidate) != wanted) continue;
    if (found) return std::nullopt;  // two would do: guessing is worse than the raw name
    found = candidate;
  }
  return found;
}

}  // namespace

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::ranges::all_of(name, [](char c) { return is_word(c) || c == '.' || c == '-'; });
}

ToolNames::ToolNames(std::vector<std::string> offered, std::vector<std::string> withheld)
    : offered_(std::move(offered)), withheld_(std::move(withheld)) {}

ToolNames::Target ToolNames::resolve(std::string_view recipient) const {
  const bool prefixed = recipient.starts_with(kFunctions);
  const std::string_view name = prefixed ? recipient.substr(kFunctions.size()) : recipient;
  if (!none_offered()) {
    // A declared name may itself begin with "functions.".
    if (contains(offered_, recipient)) return {Kind::kFunction, std::string(recipient)};
    if (contains(offered_, name)) return {Kind::kFunction, std::string(name)};
    if (contains(withheld_, name)) return {};
    if (auto match = declared(offered_, name)) return {Kind::kFunction, *std::move(match)};
    if (declared(withheld_, name)) return {};
    if (prefixed && is_tool_name(name)) return {Kind::kFunction, std::string(name)};
  }
  return {is_builtin_recipient(recipient) ? Kind::kBuiltin : Kind::kUnknown, ""};
}

}  // namespace rose::harmony
