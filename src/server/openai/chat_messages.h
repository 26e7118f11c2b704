// messages[], tools[], tool_choice and response_format of a chat request.
#pragma once

#include "chat/conversation.h"
#include "server/openai/chat_request.h"
#include "server/openai/fields.h"

namespace rose::openai {

// Each fills its part of `out`; mistakes are left in `fields`.
void read_messages(Fields& fields, const ApiLimits& limits, Conversation& out);
void read_tools(Fields& fields, const ApiLimits& limits, Conversation& out);  // tools, functions
void read_tool_choice(Fields& fields, Conversation& out);                     // after read_tools
void read_response_format(Fields& fields, Conversation& out);

}  // namespace rose::openai
