// What the operator chooses for the engine, and how the KV budget becomes pages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "decode/decoder.h"
#include "kv/kv_cache.h"

namespace rose {

struct EngineOptions {
  int context_max = 0;              // longest prompt + answer; 0: the model's own, or what the KV budget holds
  int sequences_max = 32;           // running at once
  int rows_max = 512;               // rows of one step
  int requests_waiting_max = 1024;  // more are refused with 429
  int page_size = 32;               // positions a page
  std::size_t kv_bytes = 0;         // a rank; 0: enough for sequences_max contexts, at most memory_share
  double memory_share = 0.5;        // of the memory that weights and activations leave free
  DType kv_dtype = DType::kBf16;    // or kF8E4M3 (kv/kv_cache.h), kF32 on the CPU
  DType activations = DType::kF32;  // as in ModelOptions
  bool prefix_cache = true;
  bool overlap = true;            // plan and launch a step while the one before it runs
  bool graphs = true;             // on a GPU: decoding steps run as graphs
  bool hash_logits = false;       // EngineStats::logits_hash: XXH3 over the logits of every row so far; slow
  int threads = 1;                // of a rank on the CPU, where no streams are given
  std::uint64_t random_seed = 0;  // requests without a seed draw from this and their id
  double watchdog_s = 0;  // a step that has not ended for so long ends the process (engine/watchdog.h); 0: never
  std::function<void(const std::string&)> on_stuck = {};  // instead of that, with the report
  std::vector<int> pages = {};                            // by KV set; empty: from kv_bytes
  DecoderFactory decoders = {};                           // empty: plain sampling
};

struct KvPlan {
  int context_max = 0;
  std::vector<int> pages = {};  // by KV set
  std::size_t bytes = 0;
};

// Throws StartError (kExitUsage) naming what is out of range.
void check_engine_options(const EngineOptions& options, int positions_max);

// Pages of each set and the longest context they hold.
//
// A windowed set needs, while sequences run, the pages of a window each and those of the rows of two steps; it gets
// twice that (the rest caches the ends of finished prefixes), never more than half of the budget. The other sets share
// what is left. Throws StartError (kExitDoesNotFit), with the arithmetic, where one sequence of the context does not
// fit.
KvPlan plan_kv(const std::vector<KvSetSpec>& sets, const KvShape& shape, const EngineOptions& options,
               int positions_max, std::size_t bytes_free);

}  // namespace rose
