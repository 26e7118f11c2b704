#include "tokenizer/o200k/specials.h"

#include <fmt/format.h>

namespace rose::o200k {
namespace {

const char* name_of(TokenId id) {
  switch (id) {
    case 199998:
      return "<|startoftext|>";
    case 199999:
      return "<|endoftext|>";
    case 200002:
      return "<|return|>";
    case 200003:
      return "<|constrain|>";
    case 200005:
      return "<|channel|>";
    case 200006:
      return "<|start|>";
    case 200007:
      return "<|end|>";
    case 200008:
      return "<|message|>";
    case 200012:
      return "<|call|>";
    case 200018:
      return "<|endofprompt|>";
    default:
      return nullptr;
  }
}

}  // namespace

std::vector<Special> harmony_specials() {
  std::vector<Special> specials;
  for (TokenId id = kRanks; id < kVocabulary; ++id) {
    const char* name = name_of(id);
    specials.push_back({id, name != nullptr ? name : fmt::format("<|reserved_{}|>", id)});
  }
  specials.push_back({200018, "<|reserved_200018|>"});
  return specials;
}

}  // namespace rose::o200k
