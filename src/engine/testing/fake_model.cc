#include "engine/testing/fake_model.h"

#include <algorithm>
#include <limits>

#include "base/random.h"

namespace rose::testing {
namespace {

// What attention over one KV set amounts to here: depends on every visible (position, token), and on their order.
std::uint64_t absorb(std::uint64_t hash, std::int64_t position, std::int32_t token) {
  return mix64(hash ^ mix64(static_cast<std::uint64_t>(position) << 32 | static_cast<std::uint32_t>(token)));
}

// Small whole numbers, so that float sums over ranks are exact in any order.
float logit(std::uint64_t hash, std::int32_t token, int vocabulary) {
  if (token == static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(vocabulary))) return 8;
  return static_cast<float>(mix64(hash + static_cast<std::uint64_t>(token)) % 7);
}

int window_of(int layer, const FakeModelOptions& options) {
  return options.windows[static_cast<std::size_t>(layer) % options.windows.size()];
}

int layer_count(const FakeModelOptions& options) { return 2 * static_cast<int>(options.windows.size()); }

std::uint64_t reference_hash(std::span<const std::int32_t> tokens, const FakeModelOptions& options, bool& poisoned) {
  std::uint64_t hash = 0;
  poisoned = false;
  const auto length = static_cast<std::int64_t>(tokens.size());
  for (int layer = 0; layer < layer_count(options); ++layer) {
    const int window = window_of(layer, options);
    hash = mix64(hash + static_cast<std::uint64_t>(layer));
    for (std::int64_t p = window == 0 ? 0 : std::max<std::int64_t>(0, length - window); p < length; ++p) {
      const std::int32_t token = tokens[static_cast<std::size_t>(p)];
      poisoned |= token == options.poison;
      hash = absorb(hash, p, token);
    }
  }
  return hash;
}

class FakeModel : public Model {
 public:
  FakeModel(const FakeModelOptions& options, int rank, int ranks) : options_(options), rank_(rank), ranks_(ranks) {
    shape_.name = "fake";
    shape_.layers = layer_count(options);
    shape_.hidden = 1;
    shape_.heads = shape_.kv_heads = ranks;
    shape_.head_dim = 1;
    shape_.vocabulary = options.vocabulary;
    shape_.positions_max = options.positions_max;
  }

  const ModelShape& shape() const override { return shape_; }
  int kv_heads_of_rank() const override { return 1; }
  std::size_t weight_bytes() const override { return 0; }
  std::size_t scratch_bytes(const ModelLimits&) const override { return 0; }
  void take_scratch(const ModelLimits&, Arena&) override {}

  std::vector<KvSetSpec> kv_sets() const override {
    const int sets = static_cast<int>(options_.windows.size());
    std::vector<KvSetSpec> specs;
    for (int set = 0; set < sets; ++set) {
      specs.push_back({.window = options_.windows[static_cast<std::size_t>(set)], .layers = {set, set + sets}});
    }
    return specs;
  }

  void forward(const Batch& batch, KvCache& kv, const Stream& stream, Communicator& communicator,
               const ModelOutputs& out) override {
    if (options_.before_forward) options_.before_forward();
    for (int layer = 0; layer < shape_.layers; ++layer) append(batch, kv, layer);
    if (batch.logit_rows.empty()) return;
    const std::int64_t m = batch.logit_rows.size(0);
    for (std::int64_t i = 0; i < m; ++i) {
      bool poisoned = false;
      const std::uint64_t hash = read(batch, kv, batch.logit_rows.as<std::int32_t>()[i], poisoned);
      float* logits = out.logits.row<float>(i);
      for (std::int32_t token = 0; token < shape_.vocabulary; ++token) {
        const float share = token % ranks_ == rank_ ? logit(hash, token, shape_.vocabulary) : 0;
        logits[token] = poisoned ? std::numeric_limits<float>::quiet_NaN() : share;
      }
    }
    communicator.all_reduce(stream, out.logits);
  }

 private:
  void append(const Batch& batch, KvCache& kv, int layer) const {
    KvLayer& l = kv.layer(layer);
    const auto* slots = batch.slots.at(static_cast<std::size_t>(kv.set_of(layer))).as<std::int32_t>();
    for (int row = 0; row < batch.rows; ++row) {
      const std::int32_t token = batch.tokens.as<std::int32_t>()[row];
      if (slots[row] == -1 && token == -1) continue;  // fills up a graph's layout
      CHECK(token >= 0 && token < shape_.vocabulary, "row {} has token {}", row, token);
      CHECK(slots[row] >= 0 && slots[row] < l.keys.elements(), "row {} has slot {}", row, slots[row]);
      l.keys.as<std::int32_t>()[slots[row]] = token;
      l.values.as<std::int32_t>()[slots[row]] = batch.positions.as<std::int32_t>()[row];
    }
  }

  // Hash of everything that `row` sees.
  std::uint64_t read(const Batch& batch, KvCache& kv, std::int32_t row, bool& poisoned) const {
    const ops::AttentionPlan& any = batch.plans.at(0);
    const auto* offsets = any.row_offsets.as<std::int32_t>();
    const auto s = std::upper_bound(offsets, offsets + any.sequences + 1, row) - offsets - 1;
    std::uint64_t hash = 0;
    for (int layer = 0; layer < shape_.layers; ++layer) {
      const ops::AttentionPlan& plan = batch.plans.at(static_cast<std::size_t>(kv.set_of(layer)));
      const KvLayer& l = kv.layer(layer);
      const std::int64_t position = plan.context_lengths.as<std::int32_t>()[s] - (offsets[s + 1] - row);
      CHECK(position == batch.positions.as<std::int32_t>()[row], "row {} is at {}, not {}", row, position,
            batch.positions.as<std::int32_t>()[row]);
      const std::int64_t first = plan.first_pages.as<std::int32_t>()[s];
      hash = mix64(hash + static_cast<std::uint64_t>(layer));
      for (std::int64_t p = plan.window == 0 ? 0 : std::max<std::int64_t>(0, position - plan.window + 1); p <= position;
           ++p) {
        const std::int64_t entry = p / l.page_size - first;
        CHECK(entry >= 0 && entry < plan.page_table.size(1), "position {} has no page in the table", p);
        const std::int64_t slot = plan.page_table.row<std::int32_t>(s)[entry] * l.page_size + p % l.page_size;
        const std::int32_t token = l.keys.as<std::int32_t>()[slot];
        poisoned |= token == options_.poison;
        hash = absorb(hash, l.values.as<std::int32_t>()[slot], token);
      }
    }
    return hash;
  }

  FakeModelOptions options_;
  int rank_, ranks_;
  ModelShape shape_;
};

}  // namespace

std::int32_t reference_next(std::span<const std::int32_t> tokens, const FakeModelOptions& options) {
  bool poisoned = false;
  const std::uint64_t hash = reference_hash(tokens, options, poisoned);
  return poisoned ? -1 : static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(options.vocabulary));
}

std::vector<float> reference_logits(std::span<const std::int32_t> tokens, const FakeModelOptions& options) {
  bool poisoned = false;
  const std::uint64_t hash = reference_hash(tokens, options, poisoned);
  std::vector<float> logits(static_cast<std::size_t>(options.vocabulary));
  for (std::int32_t token = 0; token < options.vocabulary; ++token) {
    logits[static_cast<std::size_t>(token)] =
        poisoned ? std::numeric_limits<float>::quiet_NaN() : logit(hash, token, options.vocabulary);
  }
  return logits;
}

std::unique_ptr<Model> make_fake_model(const FakeModelOptions& options, int rank, int ranks) {
  return std::make_unique<FakeModel>(options, rank, ranks);
}

}  // namespace rose::testing
