// A step as flat arrays: filled on the host into one slab, copied to each rank's device in one go, and seen there as
// the model's Batch and the sampler's inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/step.h"
#include "models/batch.h"
#include "ops/sample/sample.h"
#include "tensor/arena.h"

namespace rose {

struct BatchSet {
  int window = 0;
  int pages_max = 0;  // of one sequence
};

struct BatchLimits {
  int rows_max = 0;
  int logit_rows_max = 0;
  int sequences_max = 0;
  int adjustments_max = 0;
  int vocabulary = 0;
  int page_size = 0;
  std::vector<BatchSet> sets = {};
  // Ascending. A step in which every sequence brings one token and wants one row of logits is laid out for the next
  // larger of these numbers of sequences, so that a graph recorded for it can run it. Empty: no such layouts.
  std::vector<int> graph_rows = {};
};

// A run of elements in the slab.
struct SlabArray {
  std::size_t offset = 0;
  std::int64_t count = 0;
};

// Where things are in the slab of one step. Arrays of 4-byte elements unless said otherwise.
struct BatchLayout {
  struct Set {
    SlabArray slots;        // [rows]
    SlabArray page_table;   // [sequences, pages]
    SlabArray first_pages;  // [sequences]
    std::int64_t pages = 0;
  };
  int rows = 0;        // with those that only fill up a graph's layout: no token, no slot, in no sequence
  int sequences = 0;   // likewise, of no rows
  int logit_rows = 0;  // wanted
  int graph_rows = 0;  // the step may run as the graph of so many rows; 0: it may not
  int rows_longest = 0;
  int context_longest = 0;
  int mask_rows = 0;
  bool wants_logprobs = false;
  bool shares_at_start = false;          // Step::shares_at_start
  SlabArray tokens, sources, positions;  // [rows]
  SlabArray row_offsets;                 // [sequences + 1]
  SlabArray context_lengths;             // [sequences]
  SlabArray logit_row_numbers;           // [logit_rows], or [graph_rows]
  SlabArray sample_rows;                 // SampleRow [logit_rows]
  SlabArray adjustments;                 // LogitAdjustment [n]
  SlabArray masks;                       // [mask_rows, ceil(vocabulary / 32)]
  std::vector<Set> sets;
  std::size_t bytes = 0;  // of the slab in use
};

// What a rank runs: views into its copy of the slab.
struct BatchView {
  Batch batch;
  Tensor sources;              // [rows] i32: Sampler::resolve
  ops::SampleInputs sampling;  // without the logits
};

class StepBatch {
 public:
  // Takes bytes(limits) of `arena`, on the host.
  StepBatch(const BatchLimits& limits, Arena& arena);
  static std::size_t bytes(const BatchLimits& limits);

  // Right after Scheduler::next, before anything else is told to the scheduler.
  void fill(const Step& step);

  // The layout of a graph's steps as far as the model reads it.
  static BatchLayout graph_layout(const BatchLimits& limits, int graph_rows);

  const BatchLayout& layout() const { return layout_; }
  const std::byte* slab() const { return slab_; }

  // The same arrays at `base`, a copy of the slab on `device`. Where no logits are wanted, batch.logit_rows is empty.
  static BatchView view(const BatchLayout& layout, const BatchLimits& limits, std::byte* base, Device device);

 private:
  static SlabArray take(BatchLayout& layout, std::int64_t count, std::size_t element_bytes);
  static void lay_out_rows(BatchLayout& layout, int logit_rows);
  static void lay_out_graph(BatchLayout& layout, const BatchLimits& limits, int graph_rows);
  template <class T>
  T* at(const SlabArray& array) {
    return reinterpret_cast<T*>(slab_ + array.offset);
  }
  int graph_rows_of(const Step& step) const;  // 0: the step does not run as a graph
  void lay_out(const Step& step);
  void fill_rows(const Step& step);
  void fill_pages(const Step& step, std::size_t set);
  void fill_sampling(const Step& step);

  BatchLimits limits_;
  BatchLayout layout_;
  std::byte* slab_ = nullptr;
  std::size_t capacity_ = 0;
  std::vector<ops::LogitAdjustment> adjustments_;
  std::vector<ops::SampleRow> sample_rows_;
  std::vector<std::int32_t> mask_bits_;
};

}  // namespace rose
