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

// Batch 1, nothing cached: seconds from submit to the first token, at each length that the context holds. Throws
// StartError where it holds none of them.
void bench_prefill(const BenchRun& run, const PrefillOptions& options);

// Seconds a step while all sequences decode.
void bench_decode(const BenchRun& run, const DecodeOptions& options);

// The fields that say what was timed: model, shape, layout, GPUs.
json::Object model_fields(const BenchRun& run, const char* what);

}  // namespace rose
