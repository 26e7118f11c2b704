#include "engine/batch.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace rose {
namespace {

constexpr std::size_t kArrayAlignment = 16;  // of vector loads from any array

std::size_t mask_words(const BatchLimits& limits) { return (static_cast<std::size_t>(limits.vocabulary) + 31) / 32; }

}  // namespace

std::size_t StepBatch::bytes(const BatchLimits& limits) {
  const auto rows = static_cast<std::size_t>(limits.rows_max);
  const auto sequences = static_cast<std::size_t>(limits.sequences_max);
  const auto logit_rows = static_cast<std::size_t>(limits.logit_rows_max);
  std::size_t words = 3 * rows + 2 * sequences + 1 + logit_rows + logit_rows * mask_words(limits);
  for (const BatchSet& set : limits.sets) {
    words += rows + sequences + sequences * static_cast<std::size_t>(set.pages_max);
  }
  const std::size_t arrays = 9 + 3 * limits.sets.size();
  return 4 * words + logit_rows * sizeof(ops::SampleRow) +
         static_cast<std::size_t>(limits.adjustments_max) * sizeof(ops::LogitAdjustment) + arrays * kArrayAlignment;
}

StepBatch::StepBatch(const BatchLimits& limits, Arena& arena)
    : limits_(limits), slab_(static_cast<std::byte*>(arena.take("step", bytes(limits)))), capacity_(bytes(limits)) {
  CHECK(arena.device().is_cpu(), "a step is filled on the host");
  layout_.sets.resize(limits.sets.size());
}

SlabArray StepBatch::take(BatchLayout& layout, std::int64_t count, std::size_t element_bytes) {
  const std::size_t offset = (layout.bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  layout.bytes = offset + static_cast<std::size_t>(count) * element_bytes;
  return {offset, count};
}

void StepBatch::fill(const Step& step) {
  CHECK(!step.empty() && step.rows <= limits_.rows_max && step.logit_rows <= limits_.logit_rows_max &&
            static_cast<int>(step.parts.size()) <= limits_.sequences_max,
        "a step of {} rows, {} logit rows, {} sequences", step.rows, step.logit_rows, step.parts.size());
  fill_sampling(step);
  lay_out(step);
  std::ranges::copy(sample_rows_, at<ops::SampleRow>(layout_.sample_rows));
  std::ranges::copy(adjustments_, at<ops::LogitAdjustment>(layout_.adjustments));
  std::ranges::copy(mask_bits_, at<std::int32_t>(layout_.masks));
  fill_rows(step);
  for (std::size_t set = 0; set < layout_.sets.size(); ++set) fill_pages(step, set);
}

void StepBatch::fill_sampling(const Step& step) {
  adjustments_.clear();
  sample_rows_.clear();
  mask_bits_.clear();
  layout_.wants_logprobs = false;
  layout_.mask_rows = 0;
  const std::size_t words = mask_words(limits_);
  for (const StepPart& part : step.parts) {
    for (int i = 0; i < part.logit_rows; ++i) {
      ops::SampleRow row = part.sequence->sampling->row(part.first_number + i, adjustments_);
      row.slot = part.slot;
      // The table keeps one token a sequence: with drafts nobody reads it, for the next token waits for its commit.
      if (i + 1 < part.logit_rows) row.slot = -1;
      layout_.wants_logprobs |= row.top_logprobs >= 0;
      if (part.sequence->mask) {
        mask_bits_.resize(mask_bits_.size() + words);
        if (part.sequence->mask->mask(std::span(mask_bits_).last(words))) {
          row.mask_row = layout_.mask_rows++;
        } else {
          mask_bits_.resize(mask_bits_.size() - words);
        }
      }
      sample_rows_.push_back(row);
    }
  }
}

// What the model reads; rows, sequences and pages are set. First in the slab, so that a graph finds it where it was.
void StepBatch::lay_out_rows(BatchLayout& l, int logit_rows) {
  l.bytes = 0;
  l.tokens = take(l, l.rows, 4);
  l.sources = take(l, l.rows, 4);
  l.positions = take(l, l.rows, 4);
  l.row_offsets = take(l, l.sequences + 1, 4);
  l.context_lengths = take(l, l.sequences, 4);
  l.logit_row_numbers = take(l, logit_rows, 4);
  for (BatchLayout::Set& set : l.sets) {
    set.slots = take(l, l.rows, 4);
    set.page_table = take(l, l.sequences * set.pages, 4);
    set.first_pages = take(l, l.sequences, 4);
  }
}

void StepBatch::lay_out_graph(BatchLayout& l, const BatchLimits& limits, int graph_rows) {
  l.rows = l.sequences = l.graph_rows = graph_rows;
  l.rows_longest = 1;
  l.sets.resize(limits.sets.size());
  for (std::size_t set = 0; set < l.sets.size(); ++set) l.sets[set].pages = limits.sets[set].pages_max;
  lay_out_rows(l, graph_rows);
}

BatchLayout StepBatch::graph_layout(const BatchLimits& limits, int graph_rows) {
  BatchLayout layout;
  lay_out_graph(layout, limits, graph_rows);
  return layout;
}

int StepBatch::graph_rows_of(const Step& step) const {
  const auto one = [](const StepPart& part) { return part.new_tokens == 1 && part.logit_rows == 1; };
  const auto rows = std::ranges::lower_bound(limits_.graph_rows, step.rows);
  const bool fits = rows != limits_.graph_rows.end() && !step.shares_at_start;
  return fits && std::ranges::all_of(step.parts, one) ? *rows : 0;
}

void StepBatch::lay_out(const Step& step) {
  BatchLayout& l = layout_;
  const int graph_rows = graph_rows_of(step);
  if (graph_rows > 0) {
    lay_out_graph(l, limits_, graph_rows);
  } else {
    l.graph_rows = 0;
    l.rows = step.rows;
    l.sequences = static_cast<int>(step.parts.size());
    l.rows_longest = 0;
    for (const StepPart& part : step.parts) l.rows_longest = std::max(l.rows_longest, part.new_tokens);
    for (std::size_t set = 0; set < l.sets.size(); ++set) {
      std::size_t pages = 1;
      for (const StepPart& part : step.parts) pages = std::max(pages, part.pages(set).pages.size());
      CHECK(static_cast<int>(pages) <= limits_.sets[set].pages_max, "{} pages of a sequence in KV set {}, limit {}",
            pages, set, limits_.sets[set].pages_max);
      l.sets[set].pages = static_cast<std::int64_t>(pages);
    }
    lay_out_rows(l, step.logit_rows);
  }
  l.logit_rows = step.logit_rows;
  l.shares_at_start = step.shares_at_start;
  l.context_longest = 0;
  for (const StepPart& part : step.parts) l.context_longest = std::max(l.context_longest, part.start + part.new_tokens);
  l.sample_rows = take(l, l.logit_rows, sizeof(ops::SampleRow));
  l.adjustments = take(l, static_cast<std::int64_t>(adjustments_.size()), sizeof(ops::LogitAdjustment));
  l.masks = take(l, static_cast<std::int64_t>(mask_bits_.size()), 4);
  CHECK(l.bytes <= capacity_, "a step of {} bytes in a slab of {}", l.bytes, capacity_);
}

void StepBatch::fill_rows(const Step& step) {
  std::int32_t* tokens = at<std::int32_t>(layout_.tokens);
  std::int32_t* sources = at<std::int32_t>(layout_.sources);
  std::int32_t* positions = at<std::int32_t>(layout_.positions);
  std::int32_t* row_offsets = at<std::int32_t>(layout_.row_offsets);
  std::int32_t* context_lengths = at<std::int32_t>(layout_.context_lengths);
  std::int32_t* logit_rows = at<std::int32_t>(layout_.logit_row_numbers);
  std::int32_t row = 0;
  for (const StepPart& part : step.parts) {
    const Sequence& s = *part.sequence;
    *row_offsets++ = row;
    *context_lengths++ = part.start + part.new_tokens;
    for (int i = 0; i < part.new_tokens; ++i, ++row) {
      const std::int32_t position_of_row = part.start + i;
      const auto position = static_cast<std::size_t>(position_of_row);
      positions[row] = position_of_row;
      sources[row] = part.token_on_device ? part.slot : -1;
      if (part.token_on_device) {
        tokens[row] = 0;  // Sampler::resolve writes it
      } else if (position < s.tokens.size()) {
        tokens[row] = s.tokens[position];
      } else {
        tokens[row] = part.drafts.at(position - s.tokens.size());
      }
    }
    for (int i = part.logit_rows; i > 0; --i) *logit_rows++ = row - i;
  }
  *row_offsets++ = row;
  CHECK(row == step.rows, "{} rows filled of {}", row, step.rows);
  for (; row < layout_.rows; ++row) {  // what fills up a graph's layout; one row a sequence there
    tokens[row] = sources[row] = -1;
    positions[row] = 0;
    *row_offsets++ = step.rows;
    *context_lengths++ = 0;
    *logit_rows++ = 0;
  }
}

void StepBatch::fill_pages(const Step& step, std::size_t set) {
  const BatchLayout::Set& l = layout_.sets[set];
  std::int32_t* slots = at<std::int32_t>(l.slots);
  std::int32_t* page_table = at<std::int32_t>(l.page_table);
  std::int32_t* first_pages = at<std::int32_t>(l.first_pages);
  for (const StepPart& part : step.parts) {
    const PageList& list = part.pages(set);
    CHECK(list.end() * limits_.page_size >= part.start + part.new_tokens, "rows without pages in KV set {}", set);
    *first_pages++ = list.first;
    CHECK(static_cast<std::int64_t>(list.pages.size()) <= l.pages, "{} pages of a sequence in KV set {}, room for {}",
          list.pages.size(), set, l.pages);
    std::ranges::copy(list.pages, page_table);  // entries past them are not read, and a graph's tables are wide
    page_table += l.pages;
    for (int i = 0; i < part.new_tokens; ++i) {
      const int position = part.start + i;
      const int page = list.pages.at(static_cast<std::size_t>(position / limits_.page_size - list.first));
      *slots++ = page * limits_.page_size + position % limits_.page_size;
    }
  }
  for (int row = step.rows; row < layout_.rows; ++row) {
    *slots++ = -1;
    *first_pages++ = 0;
  }
}

BatchView StepBatch::view(const BatchLayout& l, const BatchLimits& limits, std::byte* base, Device device) {
  const auto i32 = [&](const SlabArray& array) {
    return Tensor(base + array.offset, DType::kI32, device, {array.count});
  };
  BatchView view;
  view.batch.rows = l.rows;
  view.batch.tokens = i32(l.tokens);
  view.batch.positions = i32(l.positions);
  if (l.logit_row_numbers.count > 0) view.batch.logit_rows = i32(l.logit_row_numbers);
  for (std::size_t set = 0; set < l.sets.size(); ++set) {
    view.batch.slots.push_back(i32(l.sets[set].slots));
    ops::AttentionPlan plan;
    plan.window = limits.sets[set].window;
    plan.sequences = l.sequences;
    plan.rows = l.rows;
    plan.rows_longest = l.rows_longest;
    plan.context_longest = l.context_longest;
    plan.reads_own_rows = l.shares_at_start;
    plan.row_offsets = i32(l.row_offsets);
    plan.context_lengths = i32(l.context_lengths);
    plan.page_table = i32(l.sets[set].page_table).reshape({l.sequences, l.sets[set].pages});
    plan.first_pages = i32(l.sets[set].first_pages);
    view.batch.plans.push_back(plan);
  }
  view.sources = i32(l.sources);
  view.sampling.rows = reinterpret_cast<const ops::SampleRow*>(base + l.sample_rows.offset);
  view.sampling.adjustments = reinterpret_cast<const ops::LogitAdjustment*>(base + l.adjustments.offset);
  if (l.mask_rows > 0) view.sampling.masks = i32(l.masks).reshape({l.mask_rows, -1});
  return view;
}

}  // namespace rose
