// rose bench ops: every operation of the model at the shapes of gpt-oss, on one GPU, beside the machine's ceilings.
#pragma once

#include "bench_options.h"
#include "bench_report.h"

namespace rose {

// Throws StartError (kExitUsage) on a machine, or in a build, without CUDA.
void bench_ops(const OpsOptions& options, BenchReport& report);

}  // namespace rose
