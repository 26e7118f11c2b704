// Typed reading of a JSON object's members. The first mistake is kept, with the path of the member as `param`; after it
// every read gives nothing, so that a parser can read on and look once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "json/json.h"

namespace rose::openai {

struct Range {
  double min = 0;
  double max = 0;
};

class Fields {
 public:
  // `object` must outlive this. The error place is shared with everything made by at().
  explicit Fields(const json::Object& object);
  // For an object inside: `path` is "messages[2].content[0]".
  Fields at(const json::Object& object, std::string path) const;

  // Absent and null are the same: nothing.
  const json::Value* value(std::string_view name) const;
  bool has(std::string_view name) const { return value(name) != nullptr; }
  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, Range range);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<std::string_view> text(std::string_view name);
  std::optional<std::string_view> required_text(std::string_view name);
  const json::Object* object(std::string_view name);
  const json::Array* array(std::string_view name);

  std::string path(std::string_view name) const;
  void fail(std::string_view name, std::string message, std::string code = "invalid_value");
  void wrong_type(std::string_view name, std::string_view expected, const json::Value& found);
  void missing(std::string_view name);
  bool ok() const { return !*error_; }
  const RequestError& error() const { return **error_; }

 private:
  const json::Object* object_;
  std::string path_;
  std::shared_ptr<std::optional<RequestError>> error_;
};

// "a string", "an integer", ... as error texts name it.
std::string_view kind_name(const json::Value& value);

}  // namespace rose::openai
