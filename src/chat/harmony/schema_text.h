// JSON Schema as the TypeScript-like text that gpt-oss was trained on (spec: harmony.md 2.4).
#pragma once

#include <string>

#include "json/json.h"

namespace rose::harmony {

struct SchemaStyle {
  // Byte parity with the openai-harmony crate where we do better: an object without properties as parameters is
  // "() => any" (crate: an empty object), and each line of a description or title carries its comment mark (crate: only
  // the first).
  bool crate = false;
  // anyOf, allOf of one and $ref into the schema itself are looked through, integer enums and const are shown. Off:
  // "any", as in training.
  bool resolve = false;
};

// Deeper schemas, and whatever comes after this much text, become "any": $ref may describe an endless type.
inline constexpr int kSchemaDepthMax = 64;
inline constexpr std::size_t kSchemaBytesMax = 1u << 20;

// "(_: TYPE) => any" or "() => any". `schema` null: no parameters.
std::string function_type(const json::Value* schema, const SchemaStyle& style);

// TYPE alone, at the top.
std::string schema_text(const json::Value& schema, const SchemaStyle& style);

// JSON without white space, numbers as serde_json writes them (1.0, 1e21), strings with only the necessary escapes.
std::string compact_json(const json::Value& value);

}  // namespace rose::harmony
