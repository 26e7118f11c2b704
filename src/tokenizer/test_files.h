// What the tokenizer's tests and benchmarks read from the repository.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "json/fields.h"
#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace rose {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string repository_file(const std::string& path) {
  return read_file(std::string(ROSE_SOURCE_DIR) + "/" + path);
}

struct TextVector {
  std::string text;
  std::vector<TokenId> ids;
};

// A golden file of tools/oracle/tokenizer_vectors.py: one {"text": ..., "ids": [...]} a line.
inline std::vector<TextVector> read_text_vectors(const std::string& name) {
  std::vector<TextVector> vectors;
  const std::string file = repository_file("tests/golden/" + name);
  for (std::size_t begin = 0; begin < file.size();) {
    const std::size_t end = file.find('\n', begin);
    const json::Value row = json::parse(std::string_view(file).substr(begin, end - begin)).value();
    TextVector vector{std::string(*json::string_field(row.get_object(), "text")), {}};
    for (const json::Value& id : **json::array_field(row.get_object(), "ids")) {
      vector.ids.push_back(static_cast<TokenId>(id.get_int64()));
    }
    vectors.push_back(std::move(vector));
    begin = end + 1;
  }
  return vectors;
}

inline std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  out.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

// The published o200k merges in tokenizer.json form: every way to cut a token into two tokens, by rank of the token, of
// its left half, of its right half (harmony.md 1.4).
struct O200kJson {
  std::string text;
  std::size_t merges = 0;
};

inline O200kJson o200k_json(const Tokenizer& o200k) {
  std::vector<std::string> spelled_byte;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int code = itself ? b : next++;
    spelled_byte.push_back(
        code < 0x80 ? std::string(1, static_cast<char>(code))
                    : std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))});
  }
  std::unordered_map<std::string_view, TokenId> ids;
  for (TokenId id = 0; id < 199'998; ++id) ids.emplace(o200k.decode(id), id);
  const auto spelled = [&](TokenId id) {
    std::string out = "\"";
    for (const char c : o200k.decode(id)) {
      if (c == '"' || c == '\\') out += '\\';
      out += spelled_byte[static_cast<unsigned char>(c)];
    }
    return out + "\"";
  };
  std::string vocab, merges;
  std::size_t merge_count = 0;
  for (TokenId id = 0; id < 199'998; ++id) {
    vocab += fmt::format("{}{}: {}", id == 0 ? "" : ",\n      ", spelled(id), id);
    const std::string_view bytes = o200k.decode(id);
    std::vector<std::pair<TokenId, TokenId>> cuts;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      const auto right = ids.find(bytes.substr(cut));
      if (left != ids.end() && right != ids.end()) cuts.emplace_back(left->second, right->second);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right] : cuts) {
      merges += fmt::format("{}[\n        {},\n        {}\n      ]", merge_count++ == 0 ? "" : ",\n      ",
                            spelled(left), spelled(right));
    }
  }
  json::Value frame = json::parse(repository_file("tests/golden/tokenizer_small.json")).value();
  frame.at("added_tokens") = json::parse(R"([{"id":199998,"content":"<|startoftext|>","special":true}])").value();
  frame.at("model").as_object()["vocab"] = "VOCAB";
  frame.at("model").as_object()["merges"] = "MERGES";
  std::string text = json::serialize(frame);
  text.replace(text.find("\"VOCAB\""), 7, "{\n      " + vocab + "\n    }");
  text.replace(text.find("\"MERGES\""), 8, "[\n      " + merges + "\n    ]");
  return {std::move(text), merge_count};
}

}  // namespace rose
