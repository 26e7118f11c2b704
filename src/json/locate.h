// Where in a JSON text something is wrong: used after a parse has failed, when only a rough position is known. Every
// function is linear in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rose::json {

struct StringSpan {
  std::size_t begin;  // of the opening quote
  std::size_t end;    // past the closing quote, or the text's end
};

struct Fault {
  std::size_t offset;
  std::string reason;
};

// The key number `ordinal` (from 0) of a text that is valid up to that key's end.
StringSpan nth_key(std::string_view text, std::uint32_t ordinal);

// What is wrong with the string that holds or ends at byte `near`, in a text that is valid before that string.
std::optional<Fault> string_fault(std::string_view text, std::size_t near);

// The first byte of the number that ends at or holds byte `near`.
std::size_t number_begin(std::string_view text, std::size_t near);

// For messages: cut to a readable length, control characters and bad UTF-8 replaced.
std::string shown(std::string_view text);
std::string shown_byte(char c);

}  // namespace rose::json
