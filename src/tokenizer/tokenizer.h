// Byte-level BPE over the o200k split pattern: text to token ids and back. Special ids are made by name only; text
// never becomes one (spec: harmony.md 1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rose {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ordinary encoding: strings such as "<|start|>" in the text become ordinary tokens. `text` is valid UTF-8 (anything
  // else is treated byte by byte, never refused). O(n log n) for any input.
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;
  virtual void encode_append(std::string_view text, std::vector<TokenId>& out) const = 0;
  // Special-token strings in the text become special ids: for /tokenize on request, and tools. Never for request text.
  virtual std::vector<TokenId> encode_with_specials(std::string_view text) const = 0;

  // Bytes of an id (specials: their string); empty for an unknown id. May be part of a UTF-8 character.
  virtual std::string_view decode(TokenId id) const = 0;
  std::string decode_all(const std::vector<TokenId>& ids) const;

  // By name; names that the file adds without calling them special are found too, but is_special() is false for them.
  virtual std::optional<TokenId> special(std::string_view text) const = 0;  // "<|start|>"
  virtual bool is_special(TokenId id) const = 0;
  virtual int vocabulary() const = 0;       // one more than the largest id
  virtual int token_bytes_max() const = 0;  // longest ordinary token: tokens >= bytes / this
};

// From tokenizer.json's bytes (both merge spellings; the split pattern must be o200k's). Throws StartError naming what
// is wrong and where.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json);

// From a .tiktoken file's bytes, with the special tokens of o200k_harmony appended at 199998 and up.
std::unique_ptr<Tokenizer> tokenizer_from_tiktoken(std::string_view ranks);

}  // namespace rose
