#include "server/openai/models.h"

#include "server/openai/errors.h"

namespace rose::openai {
namespace {

json::Object model_object(Service& service, std::string_view name) {
  json::Object out{{"id", name}, {"object", "model"}, {"created", service.created()}, {"owned_by", "rose"}};
  out["root"] = service.options().model_names.front();
  out["parent"] = nullptr;
  if (const auto model = service.model()) out["max_model_len"] = model->engine->limits().context_max;
  return out;
}

}  // namespace

void list_models(Service& service, http::Request, std::shared_ptr<http::Reply> reply) {
  json::Array models;
  for (const std::string& name : service.options().model_names) models.push_back(model_object(service, name));
  reply->send({.body = json::serialize(json::Object{{"object", "list"}, {"data", std::move(models)}})});
}

void one_model(Service& service, http::Request request, std::shared_ptr<http::Reply> reply) {
  if (!service.serves(request.path_rest)) return reply->send(error_response(service.unknown_model(request.path_rest)));
  reply->send({.body = json::serialize(model_object(service, request.path_rest))});
}

}  // namespace rose::openai
