#include "json/fields.h"

#include <cmath>

namespace rose::json {
namespace {

RequestError wrong_kind(std::string_view key, std::string_view wanted, const Value& value) {
  return {400, fmt::format("\"{}\" must be {}, not {}", key, wanted, kind_name(value)), std::string(key)};
}

RequestError missing(std::string_view key) { return {400, fmt::format("\"{}\" is missing", key), std::string(key)}; }

// Pick reads a Value and returns null or nullopt if it is of another kind.
template <class T, class Pick>
Result<T> field(const Object& object, std::string_view key, std::string_view wanted, Pick pick) {
  const Value* value = find(object, key);
  if (value == nullptr) return missing(key);
  if (auto picked = pick(*value)) return T(*picked);
  return wrong_kind(key, wanted, *value);
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (value.is_int64()) return value.get_int64();
  constexpr double kExactMax = 9007199254740992.0;  // 2^53: from here on a double names several integers
  if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
      std::abs(value.get_double()) < kExactMax) {
    return static_cast<std::int64_t>(value.get_double());
  }
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return std::nullopt;
}

}  // namespace

const Value* find(const Object& object, std::string_view key) {
  return object.if_contains(boost::json::string_view(key.data(), key.size()));
}

const Value* find_set(const Object& object, std::string_view key) {
  const Value* value = find(object, key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

Result<std::string_view> string_field(const Object& object, std::string_view key) {
  const Value* value = find(object, key);
  if (value == nullptr) return missing(key);
  if (const auto* s = value->if_string()) return view(*s);
  return wrong_kind(key, "a string", *value);
}

Result<std::int64_t> integer_field(const Object& object, std::string_view key) {
  return field<std::int64_t>(object, key, "an integer of 64 bits", as_integer);
}

Result<double> number_field(const Object& object, std::string_view key) {
  return field<double>(object, key, "a number", as_number);
}

Result<bool> bool_field(const Object& object, std::string_view key) {
  return field<bool>(object, key, "true or false", [](const Value& value) { return value.if_bool(); });
}

Result<const Object*> object_field(const Object& object, std::string_view key) {
  const Value* value = find(object, key);
  if (value == nullptr) return missing(key);
  if (const Object* inner = value->if_object()) return inner;
  return wrong_kind(key, "an object", *value);
}

Result<const Array*> array_field(const Object& object, std::string_view key) {
  const Value* value = find(object, key);
  if (value == nullptr) return missing(key);
  if (const Array* inner = value->if_array()) return inner;
  return wrong_kind(key, "an array", *value);
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

}  // namespace rose::json
