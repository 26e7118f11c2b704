// The tokenizer.json form: vocabulary and merges as strings in which every byte is one printable character, a pipeline
// of which only the published one is accepted, and added tokens (spec: harmony.md 1.6).
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "json/fields.h"
#include "json/json.h"
#include "tokenizer/byte_pair_tokenizer.h"
#include "tokenizer/o200k/split.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace rose {
namespace {

[[noreturn]] void fail(const std::string& what) { throw StartError("tokenizer.json: " + what); }

template <class T>
T need(Result<T> result, std::string_view where) {
  if (!result.ok()) fail(fmt::format("{}: {}", where, result.error().message));
  return std::move(result).value();
}

// Byte-level spelling: printable Latin-1 characters stand for themselves, the other bytes, in order, for U+0100 and up.
class Spelling {
 public:
  Spelling() {
    byte_of_.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      byte_of_[static_cast<std::size_t>(itself ? b : next++)] = static_cast<short>(b);
    }
  }

  // False if a character stands for no byte, or there is none.
  bool bytes_of(std::string_view spelled, std::string& out) const {
    out.clear();
    for (std::size_t i = 0; i < spelled.size();) {
      const auto first = static_cast<unsigned char>(spelled[i]);
      std::size_t code = first;
      std::size_t length = 1;
      if (first >= 0x80) {
        const Utf8Step step = utf8_step(spelled.substr(i));
        code = step.valid ? step.code : byte_of_.size();
        length = static_cast<std::size_t>(step.bytes);
      }
      if (code >= byte_of_.size() || byte_of_[code] < 0) return false;
      out += static_cast<char>(byte_of_[code]);
      i += length;
    }
    return !out.empty();
  }

 private:
  std::array<short, 0x144> byte_of_;
};

bool is_false_or_absent(const json::Object& object, std::string_view key) {
  const json::Value* value = json::find_set(object, key);
  return value == nullptr || (value->is_bool() && !value->get_bool());
}

void check_split(const json::Object& split) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  const json::Object& pattern = *need(json::object_field(split, "pattern"), kWhere);
  const std::string_view regex = need(json::string_field(pattern, "Regex"), kWhere);
  if (regex != o200k::kSplitPattern) fail(fmt::format("unknown split pattern {}; only o200k's is supported", regex));
  if (need(json::string_field(split, "behavior"), kWhere) != "Isolated" || !is_false_or_absent(split, "invert")) {
    fail("the split must be \"Isolated\" and not inverted");
  }
}

void check_byte_level(const json::Object& level, bool is_pre_tokenizer) {
  if (!is_pre_tokenizer) return;
  if (need(json::bool_field(level, "add_prefix_space"), "pre_tokenizer ByteLevel"))
    fail("add_prefix_space must be false");
  if (need(json::bool_field(level, "use_regex"), "pre_tokenizer ByteLevel")) fail("use_regex must be false");
}

// Split by the o200k pattern, then bytes; nothing before, nothing added after.
void check_pipeline(const json::Object& root) {
  if (json::find_set(root, "normalizer") != nullptr) fail("a normalizer is not supported");
  const json::Object& sequence = *need(json::object_field(root, "pre_tokenizer"), "root");
  const std::string_view type = need(json::string_field(sequence, "type"), "pre_tokenizer");
  if (type != "Sequence") fail(fmt::format("pre_tokenizer is {}, not a Sequence of Split and ByteLevel", type));
  const json::Array& steps = *need(json::array_field(sequence, "pretokenizers"), "pre_tokenizer");
  std::vector<const json::Object*> objects;
  std::string types;
  for (const json::Value& step : steps) {
    if (!step.is_object()) fail("pre_tokenizer: a step is not an object");
    objects.push_back(&step.get_object());
    types += fmt::format("{}{}", types.empty() ? "" : ", ",
                         need(json::string_field(*objects.back(), "type"), "pre_tokenizer"));
  }
  if (types != "Split, ByteLevel") fail(fmt::format("pre_tokenizer steps are \"{}\", not \"Split, ByteLevel\"", types));
  check_split(*objects[0]);
  check_byte_level(*objects[1], true);
  for (const char* key : {"decoder", "post_processor"}) {
    if (json::find_set(root, key) == nullptr) continue;
    const json::Object& object = *need(json::object_field(root, key), "root");
    const std::string_view kind = need(json::string_field(object, "type"), key);
    if (kind != "ByteLevel") fail(fmt::format("{} is {}, not ByteLevel", key, kind));
  }
}

void check_model(const json::Object& model) {
  if (json::find(model, "type") != nullptr) {
    const std::string_view type = need(json::string_field(model, "type"), "model");
    if (type != "BPE") fail(fmt::format("model is {}, not BPE", type));
  }
  for (const char* key : {"byte_fallback", "fuse_unk"}) {
    if (!is_false_or_absent(model, key)) fail(fmt::format("model: {} is not supported", key));
  }
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::Value* value = json::find_set(model, key);
    if (value != nullptr && !(value->is_string() && value->get_string().empty())) {
      fail(fmt::format("model: {} is not supported", key));
    }
  }
  const json::Value* dropout = json::find_set(model, "dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->to_number<double>() == 0)) {
    fail("model: dropout is not supported");
  }
}

std::vector<NamedToken> read_added(const json::Object& root) {
  std::vector<NamedToken> added;
  if (json::find_set(root, "added_tokens") == nullptr) return added;
  for (const json::Value& value : *need(json::array_field(root, "added_tokens"), "root")) {
    if (!value.is_object()) fail("added_tokens: an entry is not an object");
    const json::Object& entry = value.get_object();
    const std::string_view content = need(json::string_field(entry, "content"), "added_tokens");
    const std::int64_t id = need(json::integer_field(entry, "id"), "added_tokens");
    if (content.empty()) fail(fmt::format("added token {} is empty", id));
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
      if (!is_false_or_absent(entry, key)) fail(fmt::format("added token {}: {} is not supported", content, key));
    }
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) fail(fmt::format("added token {}: bad id {}", content, id));
    added.push_back({static_cast<TokenId>(id), std::string(content), !is_false_or_absent(entry, "special")});
  }
  std::vector<std::string_view> names;
  for (const NamedToken& token : added) names.push_back(token.text);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(fmt::format("two added tokens {}", *twice));
  return added;
}

// What stands at one id: a vocabulary entry's spelling, or an added token.
struct Entry {
  std::string_view text;
  bool used = false;
  bool added = false;
};

std::vector<Entry> entries_by_id(const json::Object& vocab, const std::vector<NamedToken>& added) {
  std::vector<Entry> entries(vocab.size() + added.size());
  const auto size = static_cast<std::int64_t>(entries.size());
  for (const auto& pair : vocab) {
    const std::string_view spelled(pair.key().data(), pair.key().size());
    const std::int64_t id = pair.value().is_int64() ? pair.value().get_int64() : -1;
    if (id < 0 || id >= size) fail(fmt::format("vocab: bad id {} of \"{}\"", json::serialize(pair.value()), spelled));
    Entry& entry = entries[static_cast<std::size_t>(id)];
    if (entry.used) fail(fmt::format("vocab: id {} is both \"{}\" and \"{}\"", id, entry.text, spelled));
    entry = {spelled, true, false};
  }
  for (const NamedToken& token : added) {
    if (token.id >= size) fail(fmt::format("added token {}: id {} leaves a hole", token.text, token.id));
    Entry& entry = entries[static_cast<std::size_t>(token.id)];
    // Writers may list an added token in the vocabulary too; it must then be the same token.
    if (entry.used && entry.text != token.text) {
      fail(fmt::format("id {} is both \"{}\" and \"{}\"", token.id, entry.text, token.text));
    }
    entry = {token.text, true, true};
  }
  while (!entries.empty() && !entries.back().used) entries.pop_back();
  const auto hole = std::find_if(entries.begin(), entries.end(), [](const Entry& entry) { return !entry.used; });
  if (hole != entries.end()) fail(fmt::format("no token has id {}", hole - entries.begin()));
  return entries;
}

TokenTable read_tokens(const std::vector<Entry>& entries, const Spelling& spelling) {
  TokenTable tokens;
  std::size_t text_bytes = 0;
  for (const Entry& entry : entries) text_bytes += entry.text.size();
  tokens.reserve(entries.size(), text_bytes);
  std::string bytes;
  for (const Entry& entry : entries) {
    if (entry.added) {
      tokens.add_hidden(entry.text);
      continue;
    }
    if (!spelling.bytes_of(entry.text, bytes)) fail(fmt::format("vocab: \"{}\" does not spell bytes", entry.text));
    const TokenId before = tokens.add(bytes);
    if (before != TokenTable::kNone)
      fail(fmt::format("vocab: \"{}\" spells the bytes of token {}", entry.text, before));
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (tokens.find({&byte, 1}) == TokenTable::kNone) fail(fmt::format("vocab: no token for byte 0x{:02x}", b));
  }
  return tokens;
}

// "left right", or ["left", "right"] as newer writers have it.
std::pair<std::string_view, std::string_view> halves(const json::Value& merge, std::size_t index) {
  if (merge.is_string()) {
    const std::string_view both = json::view(merge.get_string());
    const std::size_t space = both.find(' ');
    if (space == std::string_view::npos) fail(fmt::format("merge {}: \"{}\" is not a pair", index, both));
    return {both.substr(0, space), both.substr(space + 1)};
  }
  if (!merge.is_array() || merge.get_array().size() != 2 || !merge.get_array()[0].is_string() ||
      !merge.get_array()[1].is_string()) {
    fail(fmt::format("merge {} is not a pair of strings", index));
  }
  return {json::view(merge.get_array()[0].get_string()), json::view(merge.get_array()[1].get_string())};
}

struct Merge {
  std::string_view spelled_left, spelled_right;
  std::string left, right;
  TokenId ids[3];  // left, right, both together
};

void read_merge(const json::Value& value, std::size_t index, const Spelling& spelling, Merge& merge) {
  std::tie(merge.spelled_left, merge.spelled_right) = halves(value, index);
  if (!spelling.bytes_of(merge.spelled_left, merge.left)) merge.left.clear();
  if (!spelling.bytes_of(merge.spelled_right, merge.right)) merge.right.clear();
}

// Files list merges in the order of their results: `last` again, or the id after it.
void find_ids(const TokenTable& tokens, std::size_t index, TokenId last, Merge& merge) {
  merge.ids[0] = tokens.find(merge.left);
  merge.ids[1] = tokens.find(merge.right);
  merge.left += merge.right;
  merge.ids[2] = tokens.bytes(last) == merge.left ? last : tokens.find_near(last + 1, merge.left);
  for (const TokenId id : merge.ids) {
    if (id != TokenTable::kNone) continue;
    fail(fmt::format("merge {}: \"{}\", \"{}\" or both together are not in the vocabulary", index, merge.spelled_left,
                     merge.spelled_right));
  }
}

// Every look-up is a cache miss, 1.3 million for o200k. Working in batches lets the misses of a batch overlap: 340 ms
// became 230 on a busy machine.
MergeTable read_merges(const json::Array& list, const TokenTable& tokens, const Spelling& spelling) {
  MergeTable merges;
  merges.reserve(list.size());
  std::array<Merge, 32> batch;
  TokenId last = TokenTable::kNone;
  for (std::size_t begin = 0; begin < list.size(); begin += batch.size()) {
    const std::size_t count = std::min(batch.size(), list.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      read_merge(list[begin + i], begin + i, spelling, batch[i]);
      tokens.prefetch(batch[i].left);
      tokens.prefetch(batch[i].right);
    }
    for (std::size_t i = 0; i < count; ++i) {
      find_ids(tokens, begin + i, last, batch[i]);
      last = batch[i].ids[2];
      merges.prefetch(batch[i].ids[0], batch[i].ids[1]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Merge& merge = batch[i];
      if (merges.add(merge.ids[0], merge.ids[1], merge.ids[2])) continue;
      fail(fmt::format("merge {}: \"{}\" and \"{}\" are merged twice", begin + i, merge.spelled_left,
                       merge.spelled_right));
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json) {
  constexpr json::Limits kLimits{.bytes_max = 512u << 20, .depth_max = 32, .object_keys_max = 1u << 24};
  const json::Value root_value = need(json::parse(tokenizer_json, kLimits), "file");
  if (!root_value.is_object()) fail("not an object");
  const json::Object& root = root_value.get_object();
  check_pipeline(root);
  const json::Object& model = *need(json::object_field(root, "model"), "root");
  check_model(model);

  const Spelling spelling;
  std::vector<NamedToken> added = read_added(root);
  TokenTable tokens = read_tokens(entries_by_id(*need(json::object_field(model, "vocab"), "model"), added), spelling);
  MergeTable merges = read_merges(*need(json::array_field(model, "merges"), "model"), tokens, spelling);
  const bool whole_piece_first = !is_false_or_absent(model, "ignore_merges");
  return std::make_unique<BytePairTokenizer>(Bpe(std::move(tokens), std::move(merges), whole_piece_first),
                                             std::move(added));
}

}  // namespace rose
