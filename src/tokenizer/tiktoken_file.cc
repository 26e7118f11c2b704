// The .tiktoken form: one token a line, base64(bytes) SPACE rank, ranks ascending from 0 (spec: harmony.md 1.1).
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/byte_pair_tokenizer.h"
#include "tokenizer/o200k/specials.h"
#include "tokenizer/tokenizer.h"

namespace rose {
namespace {

constexpr auto kBase64 = [] {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<signed char, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    values[static_cast<unsigned char>(alphabet[i])] = static_cast<signed char>(i);
  }
  return values;
}();

// Canonical padded base64 only: false for anything else, and for nothing.
bool decode_base64(std::string_view text, std::string& out) {
  out.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::uint32_t bits = 0;
  int held = 0;  // bits not yet written
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = kBase64[static_cast<unsigned char>(c)];
    if (value < 0) return false;
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xFFFF;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held);
  }
  return (bits & ((1u << held) - 1)) == 0;
}

[[noreturn]] void fail(int line, const std::string& what) {
  throw StartError(fmt::format("token ranks (.tiktoken), line {}: {}", line, what));
}

void add_line(std::string_view line, int number, std::string& bytes, TokenTable& tokens) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) fail(number, "expected base64, a space and a rank");
  const std::string_view digits = line.substr(space + 1);
  if (!decode_base64(line.substr(0, space), bytes)) fail(number, "bad base64");
  int rank = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (problem != std::errc() || end != digits.data() + digits.size()) fail(number, "bad rank");
  if (rank != tokens.size()) fail(number, fmt::format("rank {} where {} is next", rank, tokens.size()));
  const TokenId before = tokens.add(bytes);
  if (before != TokenTable::kNone) fail(number, fmt::format("the same bytes as rank {}", before));
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_tiktoken(std::string_view ranks) {
  TokenTable tokens;
  tokens.reserve(o200k::kVocabulary, ranks.size());
  std::string bytes;
  int number = 0;
  while (!ranks.empty()) {
    const std::size_t end = std::min(ranks.find('\n'), ranks.size());
    std::string_view line = ranks.substr(0, end);
    ranks.remove_prefix(std::min(end + 1, ranks.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    add_line(line, ++number, bytes, tokens);
  }
  if (tokens.size() != o200k::kRanks) {
    throw StartError(
        fmt::format("token ranks (.tiktoken): {} ranks, but o200k_base has {}", tokens.size(), o200k::kRanks));
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (tokens.find({&byte, 1}) == TokenTable::kNone) {
      throw StartError(fmt::format("token ranks (.tiktoken): no token for byte 0x{:02x}", b));
    }
  }
  std::vector<NamedToken> named;
  for (o200k::Special& special : o200k::harmony_specials()) {
    if (special.id == tokens.size()) tokens.add_hidden(special.text);
    named.push_back({special.id, std::move(special.text)});
  }
  return std::make_unique<BytePairTokenizer>(Bpe(std::move(tokens)), std::move(named));
}

}  // namespace rose
