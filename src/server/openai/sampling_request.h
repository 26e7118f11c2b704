// Fields that chat and legacy completions read alike.
#pragma once

#include "server/openai/chat_request.h"
#include "server/openai/fields.h"

namespace rose::openai {

// Everything but logprobs, whose form differs between the endpoints. Mistakes are left in `fields`.
void read_sampling(Fields& fields, const ApiLimits& limits, SamplingRequest& out);

}  // namespace rose::openai
