// The text of system and developer messages (spec: harmony.md 2.2, 2.3, 2.5).
#pragma once

#include <string>

#include "chat/harmony/message.h"
#include "chat/harmony/schema_text.h"

namespace rose::harmony {

// `functions_line`: some developer message declares functions, so the channel they must use is named.
std::string system_text(const SystemContent& content, bool functions_line, const SchemaStyle& style);
std::string developer_text(const DeveloperContent& content, const SchemaStyle& style);

// True if the content declares a function in the namespace `functions`.
bool declares_functions(const DeveloperContent& content);

}  // namespace rose::harmony
