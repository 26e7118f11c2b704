#include "base/result.h"
#include "bench_ops.h"

namespace rose {

void bench_ops(const std::vector<OpCase>&, int, BenchReport&) {
  throw StartError("bench ops times CUDA kernels: this build has none (configure with the preset cuda)", kExitUsage);
}

}  // namespace rose
