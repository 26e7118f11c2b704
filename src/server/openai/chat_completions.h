// POST /v1/chat/completions.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/openai/service.h"

namespace rose::openai {

void chat_completions(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);

}  // namespace rose::openai
