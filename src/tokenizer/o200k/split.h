// Cuts text into the pieces that the o200k pattern matches, without a regex engine: one pass, no stack, every character
// read a bounded number of times (spec: harmony.md 1.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rose::o200k {

// The pattern as published: a tokenizer file that carries this text is split by Splitter.
extern const std::string_view kSplitPattern;

// Categories come from utf8proc, so its version pins the Unicode version. A byte that is not part of valid UTF-8 counts
// as a symbol of its own. The pieces, joined, are the text.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  bool next(std::string_view& piece);  // false at the end

  std::uint64_t characters_read() const { return reads_; }  // to prove that the work is linear

 private:
  struct Character {
    unsigned kind;  // one bit of Kind; 0 at the end of the text
    std::size_t bytes;
  };
  struct Word {
    std::size_t upper_end;          // of the run that alternative 1 and 2 start with
    std::size_t last_caseless_end;  // in that run; 0 if it has none
    std::size_t end;                // of the run of lower case after it
  };

  Character at(std::size_t pos);
  Word scan_word(std::size_t begin);
  std::size_t word_end(Character first);
  std::size_t contraction_end(std::size_t pos) const;
  std::size_t number_end();
  std::size_t symbols_end();
  std::size_t space_end();

  std::string_view text_;
  std::size_t pos_ = 0;
  std::uint64_t reads_ = 0;
};

}  // namespace rose::o200k
