// Runs a libFuzzer target without libFuzzer: seeded random and mutated inputs for a fixed number of rounds, so that
// every build (sanitized, g++) gives the parsers of foreign bytes a short beating. `make fuzz` does it for long, with
// coverage.
//   NAME_smoke [rounds] [corpus file...]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

class Source {
 public:
  std::uint64_t below(std::uint64_t bound) { return rose::random_bits(1, counter_++) % bound; }

 private:
  std::uint64_t counter_ = 0;
};

// Pieces that the grammars here give meaning to: random bytes alone rarely get past the first character.
const char* const kPieces[] = {"{",
                               "}",
                               "[",
                               "]",
                               ":",
                               ",",
                               "\"",
                               "\\u",
                               "null",
                               "true",
                               "1e9",
                               "-0",
                               "\n",
                               "\r\n",
                               " ",
                               "\xc3\xa9",
                               "\xf0\x9f\x98\x80",
                               "{\"a\":1}",
                               "\"messages\":",
                               "\"role\":\"user\"",
                               "\"content\":",
                               "BF16",
                               "data_offsets",
                               "shape",
                               "to=functions.f",
                               "assistant"};

Bytes fresh(Source& source) {
  Bytes bytes;
  const auto parts = source.below(24);
  for (std::uint64_t i = 0; i < parts; ++i) {
    if (source.below(2) == 0) {
      for (auto n = source.below(8); n > 0; --n) bytes.push_back(static_cast<std::uint8_t>(source.below(256)));
    } else {
      const std::string piece = kPieces[source.below(std::size(kPieces))];
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
  }
  return bytes;
}

Bytes mutated(Bytes bytes, Source& source) {
  for (auto n = 1 + source.below(4); n > 0 && !bytes.empty(); --n) {
    const auto at = static_cast<std::ptrdiff_t>(source.below(bytes.size()));
    switch (source.below(4)) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(source.below(256));
        break;
      case 1:
        bytes.erase(bytes.begin() + at);
        break;
      case 2:
        bytes.insert(bytes.begin() + at, static_cast<std::uint8_t>(source.below(256)));
        break;
      default:
        bytes.resize(static_cast<std::size_t>(at));
        break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3000;
  std::vector<Bytes> corpus;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  Source source;
  for (int round = 0; round < rounds; ++round) {
    const bool mutate = !corpus.empty() && source.below(2) == 0;
    const Bytes input = mutate ? mutated(corpus[source.below(corpus.size())], source) : fresh(source);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%d rounds\n", rounds);
}
