// What a generated recipient means, given the tools of the conversation (spec: harmony.md 3.4, 3.6 D13, D15, D16).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rose::harmony {

// Letters, digits, '_', '-' and '.', 1 to 64 of them.
bool is_tool_name(std::string_view name);

class ToolNames {
 public:
  // `offered`: may be called. `withheld`: declared, but not allowed by tool_choice.
  ToolNames(std::vector<std::string> offered, std::vector<std::string> withheld);

  enum class Kind { kFunction, kBuiltin, kUnknown };
  struct Target {
    Kind kind = Kind::kUnknown;
    std::string name;  // kFunction: as the caller knows it
  };
  Target resolve(std::string_view recipient) const;

  bool none_offered() const { return offered_.empty(); }

 private:
  std::vector<std::string> offered_;
  std::vector<std::string> withheld_;
};

}  // namespace rose::harmony
