// Any bytes: encoding and decoding give them back, ordinary ids are never special ones, and both ways to merge agree.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "json/json.h"
#include "tokenizer/bpe.h"
#include "tokenizer/o200k/split.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace rose {
namespace {

const char* const kWords[] = {"aa",           "ab", "aaa", "aab", "ba",   "bab", "\xE4\xB8",
                              "\xE4\xB8\xAD", "  ", "   ", " a",  "\r\n", "'s"};

TokenTable small_table() {
  TokenTable tokens;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    tokens.add({&byte, 1});
  }
  for (const char* word : kWords) tokens.add(word);
  return tokens;
}

std::unique_ptr<Tokenizer> small_tokenizer() {
  json::Object vocab;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int code = itself ? b : next++;
    const std::string spelled =
        code < 0x80 ? std::string(1, static_cast<char>(code))
                    : std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    vocab[spelled] = b;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const json::Object file = {
      {"added_tokens",
       {{{"id", 258}, {"content", "<|end|>"}, {"special", true}}, {{"id", 259}, {"content", "<|"}, {"special", true}}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", std::string(o200k::kSplitPattern)}}}, {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
  return tokenizer_from_json(json::serialize(file));
}

}  // namespace
}  // namespace rose

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace rose;
  static const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  static const Bpe bpe(small_table());
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);

  const std::vector<TokenId> ids = tokenizer->encode(text);
  CHECK(tokenizer->decode_all(ids) == text);
  for (const TokenId id : ids) CHECK(!tokenizer->is_special(id));
  CHECK(tokenizer->decode_all(tokenizer->encode_with_specials(text)) == text);

  std::vector<TokenId> scanned;
  std::vector<TokenId> heaped;
  bpe.encode_piece(text, scanned, nullptr, MergeMethod::kScan);
  bpe.encode_piece(text, heaped, nullptr, MergeMethod::kHeap);
  CHECK(scanned == heaped);

  Utf8Stream at_once;
  Utf8Stream by_byte;
  std::string expected;
  std::string out;
  at_once.feed(text, expected);
  at_once.flush(expected);
  for (const char& byte : text) by_byte.feed({&byte, 1}, out);
  by_byte.flush(out);
  CHECK(out == expected);
  for (std::string_view rest = out; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    CHECK(step.valid);
    rest.remove_prefix(static_cast<std::size_t>(step.bytes));
  }
  return 0;
}
