// rose bench ops: every operation of the model at the shapes of gpt-oss, on one GPU, beside the machine's ceilings.
#pragma once

#include <vector>

#include "bench_ops_cases.h"
#include "bench_report.h"

namespace rose {

// Throws StartError (kExitUsage) on a machine, or in a build, without CUDA.
void bench_ops(const std::vector<OpCase>& cases, int repeats, BenchReport& report);

}  // namespace rose
