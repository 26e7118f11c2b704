// What the commands of rose bench share.
#pragma once

#include <string>
#include <vector>

#include "load.h"

namespace rose {

struct BenchOptions {
  LoadOptions load;
  int repeats = 5;
  std::string json_path;
  double gpu_hour_price = 3;  // dollars
};

struct PrefillOptions {
  std::vector<int> lengths = {8192, 32768, 65536, 128000};  // prompt tokens
};

struct DecodeOptions {
  std::vector<int> batches = {1, 8, 32, 64, 128};
  std::vector<int> contexts = {1024};  // prompt tokens of each sequence
  int steps = 128;                     // timed
};

struct OpsOptions {
  std::vector<std::string> filters;  // rows whose operation and shape contain one of these; none: all
  bool list = false;                 // only say what would be timed
  int repeats = 30;
};

// How the model lies on the GPUs. On the CPU a rank stands where a GPU would.
struct Layout {
  int ep = 1;
  int dp = 1;
  int tp = 1;

  int gpus() const { return dp * tp; }
  std::string name() const;  // "EP1 DP1 TP1"
};
Layout layout_of(const LoadOptions& options);

}  // namespace rose
