// Typed reading of object fields, with errors that name the field: what the front end and the weight loader share.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "json/json.h"

namespace rose::json {

inline std::string_view view(const boost::json::string& s) { return {s.data(), s.size()}; }

// Null if the key is absent.
const Value* find(const Object& object, std::string_view key);
// Null if the key is absent or its value is JSON null: how OpenAI's clients leave an option unset.
const Value* find_set(const Object& object, std::string_view key);

// Errors: 400, "\"top_p\" is missing" or "\"top_p\" must be a number, not a string", with `param` set to the key.
Result<std::string_view> string_field(const Object& object, std::string_view key);
// Accepts 3 and 3.0: writers of JSON without an integer type send both.
Result<std::int64_t> integer_field(const Object& object, std::string_view key);
Result<double> number_field(const Object& object, std::string_view key);
Result<bool> bool_field(const Object& object, std::string_view key);
Result<const Object*> object_field(const Object& object, std::string_view key);
Result<const Array*> array_field(const Object& object, std::string_view key);

// "a string", "an object", ...: for messages.
std::string_view kind_name(const Value& value);

}  // namespace rose::json
