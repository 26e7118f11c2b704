#include "tokenizer/o200k/split.h"

#include <utf8proc.h>

#include <array>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace rose::o200k {

const std::string_view kSplitPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

enum Kind : unsigned {
  kUpper = 1,     // Lu, Lt
  kLower = 2,     // Ll
  kCaseless = 4,  // Lm, Lo
  kMark = 8,      // Mn, Mc, Me
  kNumber = 16,   // Nd, Nl, No
  kSpace = 32,    // White_Space but for the next two
  kNewline = 64,  // CR, LF
  kOther = 128,
};

constexpr unsigned kUpperRun = kUpper | kCaseless | kMark;  // the pattern's first letter class
constexpr unsigned kLowerRun = kLower | kCaseless | kMark;  // its second
constexpr unsigned kEitherCase = kCaseless | kMark;
constexpr unsigned kPrefix = kMark | kSpace | kOther;  // [^\r\n\p{L}\p{N}]
constexpr unsigned kSymbol = kMark | kOther;           // [^\s\p{L}\p{N}]

constexpr auto kAscii = [] {
  std::array<unsigned char, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    unsigned kind = kOther;
    if (c >= 'A' && c <= 'Z') kind = kUpper;
    if (c >= 'a' && c <= 'z') kind = kLower;
    if (c >= '0' && c <= '9') kind = kNumber;
    if (c == ' ' || (c >= 9 && c <= 13)) kind = kSpace;
    if (c == '\r' || c == '\n') kind = kNewline;
    kinds[static_cast<std::size_t>(c)] = static_cast<unsigned char>(kind);
  }
  return kinds;
}();

// The Unicode property White_Space beyond ASCII. Not U+FEFF, which other languages' \s has.
bool is_white_space(char32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

unsigned kind_of(char32_t c) {
  if (is_white_space(c)) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kUpper;
    case UTF8PROC_CATEGORY_LL:
      return kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return kOther;
  }
}

}  // namespace

Splitter::Character Splitter::at(std::size_t pos) {
  if (pos >= text_.size()) return {0, 0};
  ++reads_;
  const auto byte = static_cast<unsigned char>(text_[pos]);
  if (byte < 0x80) return {kAscii[byte], 1};
  const Utf8Step step = utf8_step(text_.substr(pos));
  if (!step.valid) return {kOther, 1};
  return {kind_of(step.code), static_cast<std::size_t>(step.bytes)};
}

bool Splitter::next(std::string_view& piece) {
  if (pos_ >= text_.size()) return false;
  const Character first = at(pos_);
  std::size_t end = word_end(first);
  if (end == 0 && first.kind == kNumber) end = number_end();
  if (end == 0) end = symbols_end();
  if (end == 0) end = space_end();
  CHECK(end > pos_ && end <= text_.size());
  piece = text_.substr(pos_, end - pos_);
  pos_ = end;
  return true;
}

Splitter::Word Splitter::scan_word(std::size_t begin) {
  Word word{begin, 0, begin};
  Character c = at(begin);
  for (; c.kind & kUpperRun; c = at(word.upper_end)) {
    word.upper_end += c.bytes;
    if (c.kind & kEitherCase) word.last_caseless_end = word.upper_end;
  }
  word.end = word.upper_end;
  for (; c.kind & kLowerRun; c = at(word.end)) word.end += c.bytes;
  return word;
}

// Alternatives 1 and 2. The pattern tries: alternative 1 with the optional first character, 1 without it, 2 with, 2
// without. Alternative 1 wants its last character in the second class, so where no lower case follows the first run it
// gives characters back until it has ended with one that is in both classes.
std::size_t Splitter::word_end(Character first) {
  const auto alternative1 = [](const Word& word) {
    return word.end > word.upper_end ? word.end : word.last_caseless_end;
  };
  std::size_t end = 0;
  if (first.kind & kPrefix) {
    const std::size_t begin = pos_ + first.bytes;
    const Word word = scan_word(begin);
    end = alternative1(word);
    // A mark can stand for the first character and for a letter; as a letter it satisfies alternative 1.
    if (end == 0 && first.kind == kMark) end = alternative1(scan_word(pos_));
    if (end == 0 && word.upper_end > begin) end = word.upper_end;
  } else if (first.kind & (kUpperRun | kLowerRun)) {
    const Word word = scan_word(pos_);
    end = alternative1(word);
    if (end == 0) end = word.upper_end;
  }
  return end == 0 ? 0 : contraction_end(end);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)? at `pos`. U+017F, the long s, folds to s.
std::size_t Splitter::contraction_end(std::size_t pos) const {
  const std::string_view rest = text_.substr(pos, 3);
  if (rest.size() < 2 || rest[0] != '\'') return pos;
  const auto lower = [&](std::size_t i) { return i < rest.size() ? static_cast<char>(rest[i] | 0x20) : '\0'; };
  const char a = lower(1);
  const char b = lower(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return pos + 3;
  return rest.substr(1) == "\xC5\xBF" ? pos + 3 : pos;
}

std::size_t Splitter::number_end() {
  constexpr int kDigitsMax = 3;
  std::size_t end = pos_;
  for (int i = 0; i < kDigitsMax; ++i) {
    const Character c = at(end);
    if (c.kind != kNumber) break;
    end += c.bytes;
  }
  return end;
}

std::size_t Splitter::symbols_end() {
  std::size_t end = text_[pos_] == ' ' ? pos_ + 1 : pos_;
  Character c = at(end);
  if (!(c.kind & kSymbol)) return 0;
  for (; c.kind & kSymbol; c = at(end)) end += c.bytes;
  while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n' || text_[end] == '/')) ++end;
  return end;
}

// The last three alternatives, where all before them have failed: the run of white space at pos_.
std::size_t Splitter::space_end() {
  std::size_t end = pos_;
  std::size_t last = pos_;  // where its last character starts
  std::size_t newline_end = 0;
  Character c = at(end);
  for (; c.kind & (kSpace | kNewline); c = at(end)) {
    last = end;
    end += c.bytes;
    if (c.kind == kNewline) newline_end = end;
  }
  if (newline_end != 0) return newline_end;
  const bool at_text_end = c.kind == 0;
  return at_text_end || last == pos_ ? end : last;
}

}  // namespace rose::o200k
