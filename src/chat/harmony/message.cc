#include "chat/harmony/message.h"

#include <array>
#include <utility>

namespace rose::harmony {
namespace {

constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{{"system", Role::kSystem},
                                                                      {"developer", Role::kDeveloper},
                                                                      {"user", Role::kUser},
                                                                      {"assistant", Role::kAssistant},
                                                                      {"tool", Role::kTool}}};

}  // namespace

std::string_view role_word(Role role) {
  for (const auto& [word, value] : kRoles) {
    if (value == role) return word;
  }
  CHECK(false, "role {}", static_cast<int>(role));
}

std::optional<Role> role_from_word(std::string_view word) {
  for (const auto& [text, role] : kRoles) {
    if (text == word) return role;
  }
  return std::nullopt;
}

}  // namespace rose::harmony
