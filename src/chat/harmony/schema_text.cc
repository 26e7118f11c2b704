#include "chat/harmony/schema_text.h"

#include <algorithm>
#include <utility>

namespace rose::harmony {
namespace {

using json::Array;
using json::Object;
using json::Value;

const Value* member(const Object& object, std::string_view key) { return object.if_contains(key); }

std::string_view string_member(const Object& object, std::string_view key) {
  const Value* value = member(object, key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

bool has_string(const Object& object, std::string_view key) {
  const Value* value = member(object, key);
  return value != nullptr && value->is_string();
}

const Array* array_member(const Object& object, std::string_view key) {
  const Value* value = member(object, key);
  return value != nullptr ? value->if_array() : nullptr;
}

const Object* object_member(const Object& object, std::string_view key) {
  const Value* value = member(object, key);
  return value != nullptr ? value->if_object() : nullptr;
}

bool is_nullable(const Object& schema) {
  const Value* value = member(schema, "nullable");
  return value != nullptr && value->is_bool() && value->get_bool();
}

// One line, for text that follows other text: a line break would leave the comment.
std::string joined_lines(std::string_view text, std::string_view separator) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += separator;
    } else {
      out += c;
    }
  }
  return out;
}

class SchemaWriter {
 public:
  SchemaWriter(const Value& root, const SchemaStyle& style) : root_(root), style_(style) {}

  void type(const Value& value, const std::string& indent, int depth);
  std::string take() { return std::move(out_); }

 private:
  void variants(const Array& list, const std::string& indent, int depth);
  void object(const Object& schema, const std::string& indent, int depth);
  void property(std::string_view name, const Value& value, bool required, const std::string& indent, int depth);
  void property_one_of(std::string_view name, const Object& schema, const Array& list, bool required,
                       const std::string& indent, int depth);
  bool string_enum(const Object& schema);
  bool resolved(const Object& schema, const std::string& indent, int depth);
  const Value* reference(std::string_view pointer) const;

  void comment(std::string_view text, const std::string& indent);
  void nullable(const Object& schema, std::size_t from);
  std::string one_line(std::string_view text) const;
  std::string default_text(const Object& schema) const;

  const Value& root_;
  const SchemaStyle& style_;
  std::string out_;
};

std::string SchemaWriter::one_line(std::string_view text) const {
  return style_.crate ? std::string(text) : joined_lines(text, " ");
}

// A comment of its own line(s).
void SchemaWriter::comment(std::string_view text, const std::string& indent) {
  out_ += indent + "// ";
  out_ += style_.crate ? std::string(text) : joined_lines(text, "\n" + indent + "// ");
  out_ += '\n';
}

void SchemaWriter::nullable(const Object& schema, std::size_t from) {
  if (is_nullable(schema) && out_.find("null", from) == std::string::npos) out_ += " | null";
}

std::string SchemaWriter::default_text(const Object& schema) const {
  const Value& value = *member(schema, "default");
  if (!value.is_string()) return compact_json(value);
  const std::string_view text = value.get_string();
  const std::string line = style_.crate ? std::string(text) : joined_lines(text, "\\n");
  return member(schema, "enum") != nullptr ? line : "\"" + line + "\"";
}

bool SchemaWriter::string_enum(const Object& schema) {
  const Array* list = array_member(schema, "enum");
  if (list == nullptr) return false;
  bool first = true;
  for (const Value& value : *list) {
    if (!value.is_string()) continue;
    if (!std::exchange(first, false)) out_ += " | ";
    out_ += '"';
    out_ += std::string_view(value.get_string());
    out_ += '"';
  }
  return !first;
}

// RFC 6901, inside the schema itself.
const Value* SchemaWriter::reference(std::string_view pointer) const {
  if (pointer.empty() || pointer.front() != '#') return nullptr;
  boost::system::error_code error;
  return root_.find_pointer(pointer.substr(1), error);
}

// What the crate leaves as "any"; true if something was written.
bool SchemaWriter::resolved(const Object& schema, const std::string& indent, int depth) {
  if (!style_.resolve) return false;
  if (has_string(schema, "$ref")) {
    const Value* target = reference(string_member(schema, "$ref"));
    if (target == nullptr) return false;
    type(*target, indent, depth + 1);
    return true;
  }
  if (const Array* all = array_member(schema, "allOf"); all != nullptr && all->size() == 1) {
    type(all->front(), indent, depth + 1);
    return true;
  }
  if (const Array* any = array_member(schema, "anyOf"); any != nullptr && !any->empty()) {
    bool first = true;
    for (const Value& variant : *any) {
      if (!std::exchange(first, false)) out_ += " | ";
      const Object* object = variant.if_object();
      if (object != nullptr && string_member(*object, "type") == "null") {
        out_ += "null";
      } else {
        type(variant, indent, depth + 1);
      }
    }
    return true;
  }
  if (const Value* value = member(schema, "const"); value != nullptr) {
    out_ += compact_json(*value);
    return true;
  }
  const Array* list = array_member(schema, "enum");
  const std::string_view name = string_member(schema, "type");
  if (list == nullptr || list->empty() || (name != "integer" && name != "number" && !name.empty())) return false;
  bool first = true;
  for (const Value& value : *list) {
    if (!std::exchange(first, false)) out_ += " | ";
    out_ += compact_json(value);
  }
  return true;
}

void SchemaWriter::type(const Value& value, const std::string& indent, int depth) {
  const Object* schema = value.if_object();
  if (schema == nullptr || depth > kSchemaDepthMax || out_.size() > kSchemaBytesMax) {
    out_ += "any";
    return;
  }
  if (const Array* list = array_member(*schema, "oneOf")) return variants(*list, indent, depth);
  if (const Array* names = array_member(*schema, "type")) {
    bool first = true;
    for (const Value& item : *names) {
      if (!item.is_string()) continue;
      if (!std::exchange(first, false)) out_ += " | ";
      const std::string_view name = item.get_string();
      out_ += name == "integer" ? "number" : name;
    }
    if (first) out_ += "any";
    return;
  }
  if (resolved(*schema, indent, depth)) return;
  const std::string_view name = string_member(*schema, "type");
  if (name == "object") return object(*schema, indent, depth);
  if (name == "array") {
    if (const Value* items = member(*schema, "items")) {
      type(*items, indent, depth + 1);
      out_ += "[]";
    } else {
      out_ += "Array<any>";
    }
  } else if (name == "string") {
    if (!string_enum(*schema)) out_ += "string";
  } else if (name == "boolean") {
    out_ += "boolean";
  } else if (name == "number" || name == "integer") {
    out_ += "number";
  } else {
    out_ += "any";
  }
}

// A oneOf that is not a property's own: each variant on a line.
void SchemaWriter::variants(const Array& list, const std::string& indent, int depth) {
  for (const Value& variant : list) {
    out_ += "\n" + indent + " | ";
    const std::size_t from = out_.size();
    type(variant, indent + "   ", depth + 1);
    const Object* schema = variant.if_object();
    if (schema == nullptr) continue;
    nullable(*schema, from);
    std::string trailing;
    if (has_string(*schema, "description")) trailing = one_line(string_member(*schema, "description"));
    if (member(*schema, "default") != nullptr) {
      if (!trailing.empty()) trailing += ' ';
      // Unlike a property's, an enum's default is quoted here.
      const bool listed = member(*schema, "enum") != nullptr;
      trailing += "default: " + (listed ? compact_json(*member(*schema, "default")) : default_text(*schema));
    }
    if (!trailing.empty()) out_ += " // " + trailing;
  }
}

void SchemaWriter::object(const Object& schema, const std::string& indent, int depth) {
  if (has_string(schema, "description")) comment(string_member(schema, "description"), indent);
  out_ += "{\n";
  if (const Object* properties = object_member(schema, "properties")) {
    const Array* required = array_member(schema, "required");
    std::vector<std::string_view> names;
    if (required != nullptr) {
      for (const Value& name : *required) {
        if (name.is_string()) names.emplace_back(name.get_string());
      }
    }
    std::ranges::sort(names);
    for (const auto& [name, value] : *properties) {
      property(name, value, std::ranges::binary_search(names, std::string_view(name)), indent, depth);
    }
  }
  out_ += indent + "}";
}

void SchemaWriter::property(std::string_view name, const Value& value, bool required, const std::string& indent,
                            int depth) {
  static const Object kEmpty;
  const Object& schema = value.is_object() ? value.get_object() : kEmpty;
  const Array* one_of = array_member(schema, "oneOf");
  if (has_string(schema, "title")) {
    comment(string_member(schema, "title"), indent);
    out_ += indent + "//\n";
  }
  if (one_of == nullptr && has_string(schema, "description")) comment(string_member(schema, "description"), indent);
  if (const Array* examples = array_member(schema, "examples"); examples != nullptr && !examples->empty()) {
    out_ += indent + "// Examples:\n";
    for (const Value& example : *examples) {
      if (!example.is_string()) continue;
      const std::string_view text = example.get_string();
      out_ += indent + "// - \"" + (style_.crate ? std::string(text) : joined_lines(text, "\\n")) + "\"\n";
    }
  }
  if (one_of != nullptr) return property_one_of(name, schema, *one_of, required, indent, depth);
  out_ += indent;
  out_ += name;
  out_ += required ? ": " : "?: ";
  const std::size_t from = out_.size();
  type(value, indent + "    ", depth + 1);
  nullable(schema, from);
  out_ += ',';
  if (member(schema, "default") != nullptr) out_ += " // default: " + default_text(schema);
  out_ += '\n';
}

void SchemaWriter::property_one_of(std::string_view name, const Object& schema, const Array& list, bool required,
                                   const std::string& indent, int depth) {
  const bool described = has_string(schema, "description");
  const std::string_view description = string_member(schema, "description");
  const Object* first = list.empty() ? nullptr : list.front().if_object();
  const bool repeats_first =
      first != nullptr && has_string(*first, "description") && string_member(*first, "description") == description;
  const bool printed = described && !repeats_first;
  if (printed) comment(description, indent);
  if (member(schema, "default") != nullptr) out_ += indent + "// default: " + default_text(schema) + "\n";
  out_ += indent;
  out_ += name;
  out_ += required ? ":\n" : "?:\n";
  bool at_first = true;
  for (const Value& variant : list) {
    const bool is_first = std::exchange(at_first, false);
    out_ += indent + " | ";
    const std::size_t from = out_.size();
    type(variant, indent + "   ", depth + 1);
    const Object* object = variant.if_object();
    if (object != nullptr) {
      nullable(*object, from);
      std::string trailing;
      const std::string_view own = string_member(*object, "description");
      const bool shown =
          has_string(*object, "description") && !(is_first && printed) && !(described && own == description);
      if (shown) trailing = one_line(own);
      if (member(*object, "default") != nullptr) {
        if (!trailing.empty()) trailing += ' ';
        trailing += "default: " + default_text(*object);
      }
      if (!trailing.empty()) out_ += " // " + trailing;
    }
    out_ += '\n';
  }
  out_ += indent + ",\n";
}

// Nothing to name: the caller writes "()".
bool has_no_arguments(const Value& schema) {
  const Object* object = schema.if_object();
  if (object == nullptr || string_member(*object, "type") != "object") return false;
  const Object* properties = object_member(*object, "properties");
  return (properties == nullptr || properties->empty()) && array_member(*object, "oneOf") == nullptr;
}

}  // namespace

std::string schema_text(const Value& schema, const SchemaStyle& style) {
  SchemaWriter writer(schema, style);
  writer.type(schema, "", 0);
  return writer.take();
}

std::string function_type(const Value* schema, const SchemaStyle& style) {
  if (schema == nullptr || schema->is_null()) return "() => any";
  if (!style.crate && has_no_arguments(*schema)) return "() => any";
  return "(_: " + schema_text(*schema, style) + ") => any";
}

}  // namespace rose::harmony
