// Runs one model over a paged cache outside of the engine: steps, pages and plans are built here in the plainest way.
// For tests and the oracle's program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"
#include "models/model.h"
#include "parallel/communicator.h"

namespace rose::testing {

struct RunnerOptions {
  int page_size = 32;
  int rows_max = 512;       // rows of one step
  int positions_max = 512;  // of one sequence
  int sequences_max = 1;
  DType kv_dtype = DType::kF32;
  DType activations = DType::kF32;  // as the model was loaded
  bool recycle = true;              // give pages of a windowed set back once no later row sees them
};

// New tokens of one sequence in a step, and which of them (by index in `tokens`) want logits.
struct SequenceStep {
  int sequence = 0;
  std::vector<std::int32_t> tokens = {};
  std::vector<int> logit_rows = {};
  int position_offset = 0;  // added to the positions that RoPE sees; attention counts from 0 as ever
};

class ModelRunner {
 public:
  ModelRunner(Model& model, Communicator& communicator, const Stream& stream, const RunnerOptions& options)
      : model_(model), communicator_(communicator), stream_(stream), options_(options), sets_(model.kv_sets()) {
    const KvShape shape{.page_size = options.page_size,
                        .kv_heads = model.kv_heads_of_rank(),
                        .head_dim = model.shape().head_dim,
                        .dtype = options.kv_dtype};
    std::vector<int> pages;  // of each set: what the longest sequences need, and no more
    for (const KvSetSpec& set : sets_) {
      int positions = options.positions_max;
      if (options.recycle && set.window > 0) {
        positions = std::min(positions, set.window - 1 + options.rows_max + options.page_size);
      }
      pages.push_back((positions + options.page_size - 1) / options.page_size * options.sequences_max);
    }
    const ModelLimits limits{
        .rows_max = options.rows_max, .logit_rows_max = options.rows_max, .sequences_max = options.sequences_max};
    arena_ = std::make_unique<Arena>(stream.device(), KvCache::bytes(sets_, pages, shape) + model.scratch_bytes(limits),
                                     "runner");
    kv_ = std::make_unique<KvCache>(sets_, pages, shape, *arena_);
    model.take_scratch(limits, *arena_);
    if (!stream.device().is_cpu()) arena_->zero();
    sequences_.resize(static_cast<std::size_t>(options.sequences_max));
    for (Sequence& sequence : sequences_) sequence.sets.resize(sets_.size());
    // Handed out from the end and not in order, so that no code can get away with assuming neighbours.
    free_.resize(sets_.size());
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      for (int page = 0; page < pages[set]; ++page) free_[set].push_back(page);
      for (std::size_t i = 2; i < free_[set].size(); i += 3) std::swap(free_[set][i], free_[set][i - 2]);
    }
  }

  // Logits of the rows asked for, in the order of `steps` and of their logit_rows: [m][vocabulary].
  std::vector<std::vector<float>> step(const std::vector<SequenceStep>& steps) {
    Flat flat = lay_out(steps);
    step_arena_.reset();
    Batch batch;
    batch.rows = static_cast<int>(flat.tokens.size());
    batch.tokens = view(flat.tokens);
    batch.positions = view(flat.positions);
    batch.logit_rows = view(flat.logit_rows);
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      SetArrays& arrays = flat.sets[set];
      batch.slots.push_back(view(arrays.slots));
      ops::AttentionPlan plan;
      plan.window = sets_[set].window;
      plan.sequences = static_cast<int>(steps.size());
      plan.rows = batch.rows;
      plan.rows_longest = flat.rows_longest;
      plan.context_longest = *std::max_element(flat.context_lengths.begin(), flat.context_lengths.end());
      plan.row_offsets = view(flat.row_offsets);
      plan.context_lengths = view(flat.context_lengths);
      plan.page_table = view(arrays.page_table).reshape({plan.sequences, -1});
      plan.first_pages = view(arrays.first_pages);
      batch.plans.push_back(plan);
    }
    const auto m = static_cast<std::int64_t>(flat.logit_rows.size());
    const ModelShape& shape = model_.shape();
    std::vector<float> logits(static_cast<std::size_t>(m * shape.vocabulary));
    std::unique_ptr<Arena> outputs;
    ModelOutputs out;
    if (m > 0) {
      outputs = std::make_unique<Arena>(
          stream_.device(), static_cast<std::size_t>(m * (shape.hidden + shape.vocabulary)) * 4 + 512, "outputs");
      out.hidden = outputs->tensor("hidden", options_.activations, {m, shape.hidden});
      out.logits = outputs->tensor("logits", DType::kF32, {m, shape.vocabulary});
    }
    model_.forward(batch, *kv_, stream_, communicator_, out);
    if (m > 0) copy_async(stream_, logits.data(), out.logits.raw(), out.logits.bytes());
    stream_.synchronize();

    std::vector<std::vector<float>> rows;
    for (std::int64_t r = 0; r < m; ++r) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * shape.vocabulary);
      rows.emplace_back(first, first + shape.vocabulary);
    }
    return rows;
  }

  // One sequence's tokens in steps of `chunk` rows; logits of `rows`, ascending indices into tokens.
  std::vector<std::vector<float>> run(const std::vector<std::int32_t>& tokens, const std::vector<int>& rows, int chunk,
                                      int position_offset = 0) {
    std::vector<std::vector<float>> logits;
    const int count = static_cast<int>(tokens.size());
    for (int begin = 0; begin < count; begin += chunk) {
      const int end = std::min(count, begin + chunk);
      SequenceStep part{.sequence = 0,
                        .tokens = {tokens.begin() + begin, tokens.begin() + end},
                        .logit_rows = {},
                        .position_offset = position_offset};
      for (const int row : rows) {
        if (row >= begin && row < end) part.logit_rows.push_back(row - begin);
      }
      for (std::vector<float>& row : step({part})) logits.push_back(std::move(row));
    }
    return logits;
  }

 private:
  struct SetPages {
    int first = 0;  // logical page of pages[0]
    std::vector<int> pages;
  };
  struct Sequence {
    int length = 0;  // positions in the cache
    std::vector<SetPages> sets;
  };
  struct SetArrays {
    std::vector<std::int32_t> slots, page_table, first_pages;
  };
  struct Flat {
    std::vector<std::int32_t> tokens, positions, logit_rows, row_offsets{0}, context_lengths;
    std::vector<SetArrays> sets;
    int rows_longest = 0;
  };

  // The values where they are, or a copy on the GPU that lasts as long as the step.
  Tensor view(std::vector<std::int32_t>& values) {
    if (values.empty()) return {};
    const Tensor host(values.data(), DType::kI32, {}, {static_cast<std::int64_t>(values.size())});
    if (stream_.device().is_cpu()) return host;
    return step_arena_.upload(stream_, host);
  }

  // Arrays of one step on a GPU, each in an arena of its own: plain, and for tests only.
  class StepArena {
   public:
    void reset() { arrays_.clear(); }
    Tensor upload(const Stream& stream, const Tensor& host) {
      arrays_.push_back(std::make_unique<Arena>(stream.device(), host.bytes(), "step"));
      const Tensor copy = host.on(arrays_.back()->take("array", host.bytes()), stream.device());
      copy_async(stream, copy.raw(), host.raw(), host.bytes());
      return copy;
    }

   private:
    std::vector<std::unique_ptr<Arena>> arrays_;
  };

  Flat lay_out(const std::vector<SequenceStep>& steps) {
    Flat flat;
    flat.sets.resize(sets_.size());
    for (const SequenceStep& step : steps) {
      Sequence& sequence = sequences_.at(static_cast<std::size_t>(step.sequence));
      const int rows = static_cast<int>(step.tokens.size());
      const int row_begin = static_cast<int>(flat.tokens.size());
      for (const int row : step.logit_rows) flat.logit_rows.push_back(row_begin + row);
      for (std::size_t set = 0; set < sets_.size(); ++set) take_pages(sequence, set, rows, flat.sets[set]);
      for (int i = 0; i < rows; ++i) {
        flat.tokens.push_back(step.tokens[static_cast<std::size_t>(i)]);
        flat.positions.push_back(sequence.length + i + step.position_offset);
      }
      sequence.length += rows;
      flat.row_offsets.push_back(row_begin + rows);
      flat.context_lengths.push_back(sequence.length);
      flat.rows_longest = std::max(flat.rows_longest, rows);
    }
    for (std::size_t set = 0; set < sets_.size(); ++set) write_tables(steps, set, flat.sets[set]);
    return flat;
  }

  // Pages for `rows` more positions, and the slots of these; first the pages that no row from here on can see go back.
  void take_pages(Sequence& sequence, std::size_t set, int rows, SetArrays& arrays) {
    SetPages& held = sequence.sets[set];
    const int window = sets_[set].window;
    const int size = options_.page_size;
    const int first_visible = window == 0 ? 0 : std::max(0, sequence.length - window + 1);
    while (options_.recycle && !held.pages.empty() && (held.first + 1) * size <= first_visible) {
      free_[set].insert(free_[set].begin(), held.pages.front());
      held.pages.erase(held.pages.begin());
      ++held.first;
    }
    for (int position = sequence.length; position < sequence.length + rows; ++position) {
      if (position / size - held.first == static_cast<int>(held.pages.size())) {
        CHECK(!free_[set].empty(), "no page left at position {}", position);
        held.pages.push_back(free_[set].back());
        free_[set].pop_back();
      }
      arrays.slots.push_back(held.pages[static_cast<std::size_t>(position / size - held.first)] * size +
                             position % size);
    }
  }

  void write_tables(const std::vector<SequenceStep>& steps, std::size_t set, SetArrays& arrays) const {
    std::size_t pages_max = 1;
    for (const SequenceStep& step : steps) {
      pages_max = std::max(pages_max, sequences_[static_cast<std::size_t>(step.sequence)].sets[set].pages.size());
    }
    for (const SequenceStep& step : steps) {
      const SetPages& held = sequences_[static_cast<std::size_t>(step.sequence)].sets[set];
      std::vector<std::int32_t> row(held.pages.begin(), held.pages.end());
      row.resize(pages_max, -1);  // a page that must not be read
      arrays.page_table.insert(arrays.page_table.end(), row.begin(), row.end());
      arrays.first_pages.push_back(held.first);
    }
  }

  Model& model_;
  Communicator& communicator_;
  Stream stream_;
  RunnerOptions options_;
  std::vector<KvSetSpec> sets_;
  std::unique_ptr<Arena> arena_;
  StepArena step_arena_;
  std::unique_ptr<KvCache> kv_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<int>> free_;  // by set
};

}  // namespace rose::testing
