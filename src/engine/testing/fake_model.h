// A model for tests of everything but arithmetic: it writes each token id and its position into the token's KV slot, in
// every layer, and predicts a hash of what it reads back through the page tables. Any error in paging, sharing,
// chunking, preemption, recycling, drafts or overlap changes the prediction.
//
// The prediction for a row is, by definition, reference_next() of the tokens up to and with the row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"

namespace rose::testing {

struct FakeModelOptions {
  int vocabulary = 97;
  int positions_max = 256;
  std::vector<int> windows = {0, 5};          // of the KV sets; set i has the layers i and i + windows.size()
  std::int32_t poison = -1;                   // rows that see this token get NaN logits
  std::function<void()> before_forward = {};  // on the worker's thread: delays, for tests of time
};

// What the model predicts after `tokens`: the largest logit.
std::int32_t reference_next(std::span<const std::int32_t> tokens, const FakeModelOptions& options);
// All logits after `tokens`, for tests of sampling. The largest leads the others by at least 1.
std::vector<float> reference_logits(std::span<const std::int32_t> tokens, const FakeModelOptions& options);

// Rank `rank` of `ranks`: every rank reads its own KV and adds its share of each logit through the communicator. KV
// must be i32 with options.kv_dtype = kI32.
std::unique_ptr<Model> make_fake_model(const FakeModelOptions& options, int rank = 0, int ranks = 1);

}  // namespace rose::testing
