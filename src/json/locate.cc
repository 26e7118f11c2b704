#include "json/locate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace rose::json {
namespace {

StringSpan string_at(std::string_view text, std::size_t quote) {
  std::size_t i = quote + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return {quote, std::min(i + 1, text.size())};
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::optional<std::uint32_t> hex4(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text.substr(at, 4)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(digit);
  }
  return value;
}

// Bytes of the valid UTF-8 character at `i`; 0 if there is none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const auto in = [&](std::size_t k, unsigned low, unsigned high) { return byte(k) >= low && byte(k) <= high; };
  const unsigned lead = byte(i);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return in(i + 1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = in(i + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && in(i + 2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = in(i + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && in(i + 2, 0x80, 0xBF) && in(i + 3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// Moves `i` past the escape at `i`, or says what is wrong with it.
std::optional<Fault> step_escape(std::string_view text, std::size_t& i) {
  const std::size_t begin = i;
  if (begin + 1 >= text.size()) return Fault{begin, "unfinished escape"};
  if (text[begin + 1] != 'u') {
    i += 2;
    if (std::string_view("\"\\/bfnrt").find(text[begin + 1]) != std::string_view::npos) return std::nullopt;
    return Fault{begin, "unknown escape"};
  }
  const auto unit = hex4(text, begin + 2);
  if (!unit) return Fault{begin, "\\u needs four hexadecimal digits"};
  i += 6;
  if (*unit < 0xD800 || *unit > 0xDFFF) return std::nullopt;
  const auto next = text.substr(std::min(i, text.size()), 2) == "\\u" ? hex4(text, i + 2) : std::nullopt;
  if (*unit > 0xDBFF || !next || *next < 0xDC00 || *next > 0xDFFF) return Fault{begin, "lone surrogate escape"};
  i += 6;
  return std::nullopt;
}

std::optional<Fault> first_fault(std::string_view text, std::size_t quote) {
  std::size_t i = quote + 1;
  while (i < text.size() && text[i] != '"') {
    if (text[i] == '\\') {
      if (auto fault = step_escape(text, i)) return fault;
      continue;
    }
    if (static_cast<unsigned char>(text[i]) < 0x20) return Fault{i, "unescaped control character in a string"};
    const std::size_t length = utf8_length(text, i);
    if (length == 0) return Fault{i, "invalid UTF-8"};
    i += length;
  }
  if (i >= text.size()) return Fault{text.size(), fmt::format("the string opened at byte {} is not closed", quote)};
  return std::nullopt;
}

}  // namespace

StringSpan nth_key(std::string_view text, std::uint32_t ordinal) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '"') {
      ++i;
      continue;
    }
    const StringSpan span = string_at(text, i);
    i = span.end;
    while (i < text.size() && is_space(text[i])) ++i;
    if (i < text.size() && text[i] == ':' && ordinal-- == 0) return span;
  }
  CHECK(false, "fewer keys than were parsed");
  return {};
}

std::optional<Fault> string_fault(std::string_view text, std::size_t near) {
  for (std::size_t i = 0; i < text.size() && i <= near;) {
    if (text[i] != '"') {
      ++i;
      continue;
    }
    const StringSpan span = string_at(text, i);
    if (near > i && near <= span.end) return first_fault(text, i);
    i = span.end;
  }
  return std::nullopt;
}

std::size_t number_begin(std::string_view text, std::size_t near) {
  std::size_t begin = std::min(near, text.size());
  const auto numeric = [](char c) {
    return (c >= '0' && c <= '9') || std::string_view("+-.eE").find(c) != std::string_view::npos;
  };
  while (begin > 0 && numeric(text[begin - 1])) --begin;
  return begin;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShownBytes = 64;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= kShownBytes) return out + "...";
    const std::size_t length = utf8_length(text, i);
    const bool plain = length > 1 || (length == 1 && static_cast<unsigned char>(text[i]) >= 0x20);
    out += plain ? text.substr(i, length) : std::string_view("?");
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string shown_byte(char c) {
  if (c > 0x20 && c < 0x7F) return fmt::format("'{}'", c);
  return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace rose::json
