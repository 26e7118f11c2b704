// The fast CPU path of `attention`.
//
// Keys are taken in blocks of 32 at absolute positions (0, 32, ...), blocks in splits of 512; a split's softmax is
// online, splits are merged in order, the sink once, first. Where blocks and splits begin depends on nothing but the
// position, so a row's result is the same in a prompt, in a decode step, and for any number of threads.
#pragma once

#include <cstdint>

#include "ops/attention/attention.h"

namespace rose::ops::x86 {

inline constexpr std::int64_t kKeyBlock = 32;
inline constexpr std::int64_t kKeySplit = 512;
inline constexpr std::int64_t kQueriesMax = 64;  // (row, head) pairs of one piece of work
inline constexpr std::int64_t kHeadDimMax = 256;

// The shapes the fast path takes: head_dim in whole vectors, the heads of a KV head in one piece.
bool attention_fits(std::int64_t head_dim, std::int64_t heads_per_kv_head);

void attention(const Stream& stream, const Tensor& q, const KvLayer& kv, const AttentionPlan& plan, const Tensor& sinks,
               float scale, const Tensor& out);

// Queries of one KV head over keys [begin, end) of one sequence, which lie in one split. The caller's state continues.
struct SplitWork {
  const float* queries = nullptr;           // [count, head_dim]
  const std::int32_t* positions = nullptr;  // [count], ascending
  std::int64_t count = 0;
  std::int64_t head_dim = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t window = 0;
  float scale = 1;
  // Keys and values of position p: element(slot of p, kv_head).
  const KvLayer* kv = nullptr;
  std::int64_t kv_head = 0;
  const std::int32_t* pages = nullptr;  // entry of logical page first_page
  std::int64_t first_page = 0;
};

// Softmax state of each query: maximum, sum of exponentials, weighted values (not divided).
struct SplitState {
  float* maximum = nullptr;  // [count]
  float* sum = nullptr;      // [count]
  float* values = nullptr;   // [count, head_dim]
};

void attend_split(const SplitWork& work, const SplitState& state);

}  // namespace rose::ops::x86
