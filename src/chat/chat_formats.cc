// The list of chat formats: one line each.
#include <array>

#include "chat/chat_format.h"
#include "chat/harmony/harmony.h"

namespace rose {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<ChatFormat> (*make)(std::shared_ptr<const Tokenizer>, const std::vector<TokenId>&);
};

template <class Format>
std::unique_ptr<ChatFormat> make(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& stops) {
  return std::make_unique<Format>(std::move(tokenizer), stops);
}

constexpr std::array kFormats = {
    Entry{"harmony", make<Harmony>},
};

}  // namespace

std::unique_ptr<ChatFormat> make_chat_format(std::string_view name, std::shared_ptr<const Tokenizer> tokenizer,
                                             const std::vector<TokenId>& generation_stop_tokens) {
  std::string known;
  for (const Entry& entry : kFormats) {
    if (entry.name == name) return entry.make(std::move(tokenizer), generation_stop_tokens);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw StartError(fmt::format("unknown chat format \"{}\"; known: {}", name, known));
}

}  // namespace rose
