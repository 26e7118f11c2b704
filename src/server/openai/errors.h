// The one writer of OpenAI's error object.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "json/json.h"
#include "server/http.h"

namespace rose::openai {

// {"error":{"message","type","param","code"}}; `extra` are further members of the inner object.
json::Object error_object(const RequestError& error, const json::Object& extra = {});
std::string error_body(const RequestError& error, const json::Object& extra = {});

// With retry-after where trying again makes sense, and x-should-retry: false where OpenAI's clients would try again for
// nothing.
http::Response error_response(const RequestError& error, const json::Object& extra = {});

}  // namespace rose::openai
