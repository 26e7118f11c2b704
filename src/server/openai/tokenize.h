// POST /tokenize and /detokenize, in vLLM's and llama.cpp's shapes.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/openai/service.h"

namespace rose::openai {

void tokenize(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);
void detokenize(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);

}  // namespace rose::openai
