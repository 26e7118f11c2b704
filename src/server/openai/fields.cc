#include "server/openai/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace rose::openai {

std::string_view kind_name(const json::Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a decimal";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      break;
  }
  return "an object";
}

Fields::Fields(const json::Object& object)
    : object_(&object), error_(std::make_shared<std::optional<RequestError>>()) {}

Fields Fields::at(const json::Object& object, std::string path) const {
  Fields inner = *this;
  inner.object_ = &object;
  inner.path_ = std::move(path);
  return inner;
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(std::string_view name, std::string message, std::string code) {
  if (!*error_) *error_ = RequestError{400, std::move(message), path(name), std::move(code)};
}

void Fields::wrong_type(std::string_view name, std::string_view expected, const json::Value& found) {
  fail(name,
       fmt::format("Invalid type for '{}': expected {}, but got {} instead.", path(name), expected, kind_name(found)),
       "invalid_type");
}

void Fields::missing(std::string_view name) {
  fail(name, fmt::format("Missing required parameter: '{}'.", path(name)), "missing_required_parameter");
}

const json::Value* Fields::value(std::string_view name) const {
  const json::Value* found = object_->if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return std::nullopt;
  if (!found->is_bool()) {
    wrong_type(name, "a boolean", *found);
    return std::nullopt;
  }
  return found->get_bool();
}

std::optional<double> Fields::number(std::string_view name, Range range) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return std::nullopt;
  if (!found->is_number()) {
    wrong_type(name, "a decimal", *found);
    return std::nullopt;
  }
  const double number = found->to_number<double>();
  if (!(number >= range.min)) {
    fail(name,
         fmt::format("Invalid '{}': decimal below minimum value. Expected a value >= {}, but got {} instead.",
                     path(name), range.min, number),
         "decimal_below_min_value");
    return std::nullopt;
  }
  if (!(number <= range.max)) {
    fail(name,
         fmt::format("Invalid '{}': decimal above maximum value. Expected a value <= {}, but got {} instead.",
                     path(name), range.max, number),
         "decimal_above_max_value");
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return std::nullopt;
  // 5.0 is an integer to JSON Schema and to clients that only know doubles; 5.5 is not.
  const bool whole = found->is_double() && std::floor(found->get_double()) == found->get_double();
  if (!found->is_int64() && !found->is_uint64() && !whole) {
    wrong_type(name, "an integer", *found);
    return std::nullopt;
  }
  const double rough = found->to_number<double>();  // exact below 2^53, and only compared with bounds far below
  if (rough < static_cast<double>(min)) {
    fail(name,
         fmt::format("Invalid '{}': integer below minimum value. Expected a value >= {}, but got {} instead.",
                     path(name), min, json::serialize(*found)),
         "integer_below_min_value");
    return std::nullopt;
  }
  if (rough > static_cast<double>(max) || rough >= 0x1p63) {
    fail(name,
         fmt::format("Invalid '{}': integer above maximum value. Expected a value <= {}, but got {} instead.",
                     path(name), max, json::serialize(*found)),
         "integer_above_max_value");
    return std::nullopt;
  }
  return found->is_int64() ? found->get_int64() : static_cast<std::int64_t>(rough);
}

std::optional<std::string_view> Fields::text(std::string_view name) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return std::nullopt;
  if (!found->is_string()) {
    wrong_type(name, "a string", *found);
    return std::nullopt;
  }
  return std::string_view(found->get_string());
}

std::optional<std::string_view> Fields::required_text(std::string_view name) {
  if (!has(name)) missing(name);
  return text(name);
}

const json::Object* Fields::object(std::string_view name) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return nullptr;
  if (!found->is_object()) {
    wrong_type(name, "an object", *found);
    return nullptr;
  }
  return &found->get_object();
}

const json::Array* Fields::array(std::string_view name) {
  const json::Value* found = value(name);
  if (found == nullptr || !ok()) return nullptr;
  if (!found->is_array()) {
    wrong_type(name, "an array", *found);
    return nullptr;
  }
  return &found->get_array();
}

}  // namespace rose::openai
