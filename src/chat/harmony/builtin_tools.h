// The tools gpt-oss was trained with beside functions (spec: harmony.md 2.5). Rendered on request only: the server runs
// none of them and must not advertise them.
#pragma once

#include <string_view>

#include "chat/harmony/message.h"

namespace rose::harmony {

ToolNamespace browser_tools();
ToolNamespace python_tool();

// "python", "browser.search", "container.exec", "repo_browser.list": names the model knows without being told.
bool is_builtin_recipient(std::string_view recipient);

}  // namespace rose::harmony
