#include <charconv>

#include "chat/harmony/schema_text.h"

namespace rose::harmony {
namespace {

void write_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// Shortest digits that read back the same, laid out with a point for 1e-5 <= |x| < 1e16, else with an exponent.
void write_double(double value, std::string& out) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  if (e == std::string_view::npos) {  // not finite: JSON has no word for it
    out += "null";
    return;
  }
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::size_t from = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + from, text.data() + text.size(), exponent);
  const int length = static_cast<int>(digits.size());
  const int point = exponent + 1;  // digits before the point
  if (digits == "0") {
    out += "0.0";
  } else if (length <= point && point <= 16) {
    out += digits + std::string(static_cast<std::size_t>(point - length), '0') + ".0";
  } else if (0 < point && point <= 16) {
    out += digits.substr(0, static_cast<std::size_t>(point)) + "." + digits.substr(static_cast<std::size_t>(point));
  } else if (-5 < point && point <= 0) {
    out += "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  } else {
    out += digits.substr(0, 1);
    if (length > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}", exponent);
  }
}

void write(const json::Value& value, std::string& out) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      break;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      break;
    case boost::json::kind::int64:
      out += fmt::format("{}", value.get_int64());
      break;
    case boost::json::kind::uint64:
      out += fmt::format("{}", value.get_uint64());
      break;
    case boost::json::kind::double_:
      write_double(value.get_double(), out);
      break;
    case boost::json::kind::string:
      write_string(value.get_string(), out);
      break;
    case boost::json::kind::array: {
      out += '[';
      bool first = true;
      for (const json::Value& item : value.get_array()) {
        if (!std::exchange(first, false)) out += ',';
        write(item, out);
      }
      out += ']';
      break;
    }
    case boost::json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.get_object()) {
        if (!std::exchange(first, false)) out += ',';
        write_string(key, out);
        out += ':';
        write(item, out);
      }
      out += '}';
      break;
    }
  }
}

}  // namespace

std::string compact_json(const json::Value& value) {
  std::string out;
  write(value, out);
  return out;
}

}  // namespace rose::harmony
