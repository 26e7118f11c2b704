#include "tokenizer/utf8.h"

#include "base/check.h"

namespace rose {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What may follow a lead byte (Unicode 15, table 3-7): the range of the second byte, and the character's length.
struct Lead {
  int bytes;
  unsigned char low, high;
  unsigned char payload;  // mask of the lead byte's own bits
};

Lead lead_of(unsigned char b) {
  if (b < 0xC2) return {0, 0, 0, 0};  // a continuation byte, or the start of an overlong form
  if (b < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (b < 0xF0)
    return {3, static_cast<unsigned char>(b == 0xE0 ? 0xA0 : 0x80), static_cast<unsigned char>(b == 0xED ? 0x9F : 0xBF),
            0x0F};
  if (b < 0xF5)
    return {4, static_cast<unsigned char>(b == 0xF0 ? 0x90 : 0x80), static_cast<unsigned char>(b == 0xF4 ? 0x8F : 0xBF),
            0x07};
  return {0, 0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  DCHECK(!bytes.empty());
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x80) return {.code = first, .bytes = 1, .valid = true};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0) return {.bytes = 1};
  char32_t code = first & lead.payload;
  for (int i = 1; i < lead.bytes; ++i) {
    if (static_cast<std::size_t>(i) >= bytes.size()) return {.bytes = i, .unfinished = true};
    const auto b = static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    if (b < (i == 1 ? lead.low : 0x80) || b > (i == 1 ? lead.high : 0xBF)) return {.bytes = i};
    code = code << 6 | (b & 0x3F);
  }
  return {.code = code, .bytes = lead.bytes, .valid = true};
}

void Utf8Stream::feed(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined.swap(held_);
    joined += bytes;
    bytes = joined;
  }
  std::size_t copied = 0;  // everything before it is in `out`
  std::size_t i = 0;
  while (i < bytes.size()) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = utf8_step(bytes.substr(i));
    if (step.unfinished) break;
    if (!step.valid) {
      out += bytes.substr(copied, i - copied);
      out += kReplacement;
      copied = i + static_cast<std::size_t>(step.bytes);
    }
    i += static_cast<std::size_t>(step.bytes);
  }
  out += bytes.substr(copied, i - copied);
  held_ = bytes.substr(i);
}

void Utf8Stream::flush(std::string& out) {
  if (!held_.empty()) out += kReplacement;
  held_.clear();
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  Utf8Stream stream;
  stream.feed(bytes, text);
  stream.flush(text);
  return text;
}

}  // namespace rose
