// Times a loaded model end to end.
#pragma once

#include "bench_options.h"
#include "bench_report.h"

namespace rose {

struct BenchRun {
  const LoadedModel& model;
  const BenchOptions& options;
  BenchReport& report;
};

// Batch 1, nothing cached: seconds from submit to the first token, at each length that fits.
void bench_prefill(const BenchRun& run, const PrefillOptions& options);
// Those that the context holds; says on stderr which it does not. Throws StartError where it holds none.
std::vector<int> lengths_that_fit(const BenchRun& run, const PrefillOptions& options);

// Seconds a step while all sequences decode.
void bench_decode(const BenchRun& run, const DecodeOptions& options);

// In the place of both (nullptr: not that one), with LoadOptions::hash_logits: after each shape the hash of all logits
// so far, equal in every run of the same command. No times.
void hash_logits(const BenchRun& run, const PrefillOptions* prefill, const DecodeOptions* decode);

// The fields that say what was timed: model, shape, layout, GPUs.
json::Object model_fields(const BenchRun& run, const char* what);

}  // namespace rose
