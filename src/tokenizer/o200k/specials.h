// The special tokens of o200k_harmony as tiktoken names them (spec: harmony.md 1.2).
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace rose::o200k {

constexpr int kRanks = 199'998;       // ids 0 to 199,997 are ordinary
constexpr int kVocabulary = 201'088;  // the model's rows: there is no 201088, although one reference names it

struct Special {
  TokenId id;
  std::string text;
};

// One per id from kRanks to kVocabulary - 1, in order; then the alias <|reserved_200018|> of 200018.
std::vector<Special> harmony_specials();

}  // namespace rose::o200k
