// What the tokenizer's tests and benchmarks read from the repository.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
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

}  // namespace rose
