#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tokenizer/test_files.h"

namespace rose {
namespace {

using Ids = std::vector<TokenId>;

// All bytes, and random longer tokens over a small alphabet, each the join of two earlier ones so that merges reach it.
Bpe random_bpe(std::mt19937_64& random, int extra, bool by_list) {
  TokenTable tokens;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    tokens.add({&byte, 1});
  }
  std::vector<std::string> made = {"a", "b", "c"};
  MergeTable merges;
  merges.reserve(static_cast<std::size_t>(extra));
  while (tokens.size() < 256 + extra) {
    const std::string left = made[random() % made.size()];
    const std::string right = made[random() % made.size()];
    if (left.size() + right.size() > 20 || tokens.add(left + right) != TokenTable::kNone) continue;
    merges.add(tokens.find(left), tokens.find(right), tokens.size() - 1);
    made.push_back(left + right);
  }
  return by_list ? Bpe(std::move(tokens), std::move(merges), false) : Bpe(std::move(tokens));
}

std::string random_text(std::mt19937_64& random, std::size_t size) {
  std::string text(size, ' ');
  const unsigned letters = 1 + random() % 3;
  for (char& c : text) c = static_cast<char>('a' + random() % letters);
  return text;
}

// The definition, word for word: strings in a list, every pair looked at anew for every merge.
Ids by_definition(const TokenTable& tokens, std::string_view piece) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = parts.size();
    TokenId best_id = std::numeric_limits<TokenId>::max();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const TokenId id = tokens.find(parts[i] + parts[i + 1]);
      if (id != TokenTable::kNone && id < best_id) best = i, best_id = id;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(tokens.find(part));
  return ids;
}

Ids merged(const Bpe& bpe, std::string_view piece, MergeMethod method) {
  Ids ids;
  bpe.encode_piece(piece, ids, nullptr, method);
  return ids;
}

TEST(Bpe, ScanAndHeapFollowTheDefinition) {
  std::mt19937_64 random(1);
  for (int vocabulary = 0; vocabulary < 20; ++vocabulary) {
    const Bpe bpe = random_bpe(random, 2 + static_cast<int>(random() % 60), false);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random_text(random, 1 + random() % 150);
      if (bpe.tokens().find(text) != TokenTable::kNone) continue;
      const Ids expected = by_definition(bpe.tokens(), text);
      ASSERT_EQ(merged(bpe, text, MergeMethod::kScan), expected) << text;
      ASSERT_EQ(merged(bpe, text, MergeMethod::kHeap), expected) << text;
    }
  }
}

TEST(Bpe, ScanAndHeapAgreeOnListedMerges) {
  std::mt19937_64 random(2);
  for (int vocabulary = 0; vocabulary < 20; ++vocabulary) {
    const Bpe bpe = random_bpe(random, 2 + static_cast<int>(random() % 60), true);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random_text(random, 1 + random() % 150);
      ASSERT_EQ(merged(bpe, text, MergeMethod::kScan), merged(bpe, text, MergeMethod::kHeap)) << text;
    }
  }
}

TEST(Bpe, OnlyListedPairsMerge) {
  TokenTable tokens;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    tokens.add({&byte, 1});
  }
  tokens.add("ab");   // 256
  tokens.add("bc");   // 257
  tokens.add("abc");  // 258
  MergeTable merges;
  merges.reserve(2);
  EXPECT_TRUE(merges.add('b', 'c', 257));
  EXPECT_TRUE(merges.add(256, 'c', 258));  // never possible: nothing makes "ab"
  EXPECT_FALSE(merges.add('b', 'c', 257));
  const Bpe listed(tokens, merges, false);
  EXPECT_EQ(merged(listed, "abc", MergeMethod::kByLength), (Ids{'a', 257}));
  EXPECT_EQ(merged(Bpe(tokens, merges, true), "abc", MergeMethod::kByLength), Ids{258});
  EXPECT_EQ(merged(Bpe(tokens), "abcd", MergeMethod::kByLength), (Ids{258, 'd'}));
}

class O200kWork : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto tokenizer = tokenizer_from_tiktoken(repository_file("tests/data/o200k_base.tiktoken"));
    TokenTable tokens;
    tokens.reserve(199'998, 2'000'000);
    for (TokenId id = 0; id < 199'998; ++id) tokens.add(tokenizer->decode(id));
    bpe_ = std::make_unique<Bpe>(std::move(tokens));
  }
  static void TearDownTestSuite() { bpe_.reset(); }
  static std::unique_ptr<Bpe> bpe_;
};
std::unique_ptr<Bpe> O200kWork::bpe_;

// n starting pairs; at most n - 1 merges, each forming two pairs; every formed pair enters and leaves the heap once.
TEST_F(O200kWork, GrowsLinearlyWithThePiece) {
  for (const std::string_view unit :
       {"a", "=", "-", "A", "Aa", "ab", "é", "中", "\n", " ", "ACGT", "the", "\xFF", "日本語"}) {
    std::uint64_t before = 0;
    for (const std::size_t size : {20'000u, 40'000u, 80'000u}) {
      std::uint64_t steps = 0;
      Ids ids;
      const std::string piece = repeated(unit, size / unit.size());
      bpe_->encode_piece(piece, ids, &steps);
      EXPECT_LE(steps, 6 * piece.size()) << unit;
      if (before != 0) {
        EXPECT_LE(static_cast<double>(steps), 2.01 * static_cast<double>(before)) << unit;
      }
      before = steps;
    }
  }
}

TEST_F(O200kWork, ScanAndHeapAgreeOnTheRealVocabulary) {
  std::mt19937_64 random(5);
  const auto vectors = read_text_vectors("tokenizer_vectors.jsonl");
  for (int i = 0; i < 400; ++i) {
    const std::string& text = vectors[random() % vectors.size()].text;
    const std::string_view piece = std::string_view(text).substr(0, 300);
    ASSERT_EQ(merged(*bpe_, piece, MergeMethod::kScan), merged(*bpe_, piece, MergeMethod::kHeap)) << text;
  }
}

// Every token's bytes merge to that token, so taking a whole piece first is a short cut and never another answer.
TEST_F(O200kWork, EveryTokenIsReachedByMerges) {
  const Bpe merges_only(bpe_->tokens(), false);
  for (TokenId id = 0; id < 199'998; ++id) {
    ASSERT_EQ(merged(merges_only, merges_only.tokens().bytes(id), MergeMethod::kByLength), Ids{id});
  }
}

}  // namespace
}  // namespace rose
