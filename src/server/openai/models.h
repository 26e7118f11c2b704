// GET /v1/models, GET /v1/models/{id}.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/openai/service.h"

namespace rose::openai {

void list_models(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);
void one_model(Service& service, http::Request request, std::shared_ptr<http::Reply> reply);

}  // namespace rose::openai
