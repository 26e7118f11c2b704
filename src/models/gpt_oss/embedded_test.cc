// The embedded model, whose weights have learnt something: what an e4m3 KV cache does to answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/testing/model_runner.h"

namespace rose {
namespace {

using Logits = std::vector<std::vector<float>>;
using Tokens = std::vector<std::int32_t>;

// A system message, "What is 123 + 456?" and the start of the assistant's, in rose-tiny's tokens.
const Tokens kPrompt = {2043, 384,  2045, 350,  1604, 220,  386,  388,  11,   1598, 1614, 1612, 1606, 1610, 1605,
                        220,  380,  372,  445,  391,  25,   1644, 256,  2,    1619, 1617, 25,   1613, 11,   1602,
                        11,   1616, 13,   1620, 1603, 1611, 1621, 1600, 1615, 1608, 13,   2044, 2043, 321,  2045,
                        599,  1623, 220,  16,   17,   18,   425,  220,  19,   20,   21,   30,   2044, 2043, 278};
constexpr int kAnswer = 40;  // tokens; the whole answer is about as long

std::int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class EmbeddedModel {
 public:
  explicit EmbeddedModel(DType kv)
      : model_(load_model(*open_weights(std::string(ROSE_SOURCE_DIR) + "/models/rose-tiny"), {}, Stream::cpu(2), {})),
        runner_(*model_, *solo_, Stream::cpu(2),
                {.rows_max = 128, .positions_max = 128, .sequences_max = 2, .kv_dtype = kv}) {}

  Tokens answer() {
    const int last = static_cast<int>(kPrompt.size()) - 1;
    Tokens tokens = {likeliest(runner_.step({{.tokens = kPrompt, .logit_rows = {last}}})[0])};
    while (tokens.size() < kAnswer) {
      tokens.push_back(likeliest(runner_.step({{.tokens = {tokens.back()}, .logit_rows = {0}}})[0]));
    }
    return tokens;
  }
  // Of every row of prompt and answer.
  Logits logits(const Tokens& answer) {
    Tokens all = kPrompt;
    all.insert(all.end(), answer.begin(), answer.end());
    std::vector<int> rows(all.size());
    std::iota(rows.begin(), rows.end(), 0);
    return runner_.step({{.sequence = 1, .tokens = all, .logit_rows = rows}});
  }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<Communicator> solo_ = make_solo_communicator();
  testing::ModelRunner runner_;
};

// Kullback-Leibler divergence of the softmax of `found` from that of `exact`, in nats.
double divergence(const std::vector<float>& exact, const std::vector<float>& found) {
  const auto log_sum = [](const std::vector<float>& logits) {
    const double highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - highest);
    return highest + std::log(sum);
  };
  const double of_exact = log_sum(exact), of_found = log_sum(found);
  double total = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    total += std::exp(exact[i] - of_exact) * ((exact[i] - of_exact) - (found[i] - of_found));
  }
  return total;
}

TEST(GptOssEmbedded, AnE4m3CacheGivesTheSameAnswerFromNearlyTheSameLogits) {
  EmbeddedModel in_f32(DType::kF32), in_e4m3(DType::kF8E4M3);
  const Tokens exact = in_f32.answer();
  EXPECT_EQ(in_e4m3.answer(), exact);

  const Logits expected = in_f32.logits(exact), bf16 = EmbeddedModel(DType::kBf16).logits(exact),
               e4m3 = in_e4m3.logits(exact);
  double squares = 0, total = 0, nats = 0, nats_bf16 = 0;
  int likeliest_differ = 0;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      squares += std::pow(static_cast<double>(expected[r][i]) - e4m3[r][i], 2);
      total += std::pow(static_cast<double>(expected[r][i]), 2);
    }
    nats += divergence(expected[r], e4m3[r]) / static_cast<double>(expected.size());
    nats_bf16 += divergence(expected[r], bf16[r]) / static_cast<double>(expected.size());
    likeliest_differ += likeliest(expected[r]) != likeliest(e4m3[r]);
  }
  const double distance = std::sqrt(squares / total);
  EXPECT_GT(distance, 0);
  EXPECT_LE(distance, 0.05);
  EXPECT_LE(nats, 0.01);
  EXPECT_LE(likeliest_differ, 3);
  fmt::print(
      "  rose-tiny, {} rows, KV in e4m3: RMS distance {:.1e}, divergence {:.1e} nats (bf16: {:.1e}), {} other "
      "likeliest tokens\n",
      expected.size(), distance, nats, nats_bf16, likeliest_differ);
}

}  // namespace
}  // namespace rose
