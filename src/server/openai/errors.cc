#include "server/openai/errors.h"

namespace rose::openai {
namespace {

std::string_view error_type(int status) {
  if (status == 429) return "rate_limit_exceeded";
  if (status == 401 || status == 403) return "invalid_request_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string_view default_code(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_exceeded";
    default:
      return "";
  }
}

json::Value text_or_null(std::string_view text) { return text.empty() ? json::Value(nullptr) : json::Value(text); }

}  // namespace

json::Object error_object(const RequestError& error, const json::Object& extra) {
  json::Object inner;
  inner["message"] = error.message;
  inner["type"] = error_type(error.status);
  inner["param"] = text_or_null(error.param);
  inner["code"] = text_or_null(error.code.empty() ? default_code(error.status) : std::string_view(error.code));
  for (const auto& member : extra) inner[member.key()] = member.value();
  json::Object outer;
  outer["error"] = std::move(inner);
  return outer;
}

std::string error_body(const RequestError& error, const json::Object& extra) {
  return json::serialize(error_object(error, extra));
}

http::Response error_response(const RequestError& error, const json::Object& extra) {
  http::Response response{.status = error.status, .body = error_body(error, extra)};
  if (error.status == 429 || error.status == 503) response.fields.emplace_back("retry-after", "1");
  if (error.status == 500 || error.status == 504) response.fields.emplace_back("x-should-retry", "false");
  return response;
}

}  // namespace rose::openai
