// Prefill latencies that others have published for the models that rose serves: what its own are printed beside.
#pragma once

#include <optional>
#include <string>

#include "models/model.h"

namespace rose {

struct PublishedPrefill {
  double seconds = 0;
  double dollars = 0;  // for a million input tokens at $3.00 a GPU-hour
};

inline constexpr const char* kPublishedPrefillSource =
    "Perplexity, \"GPT-OSS on Day 0\", 2025-08-08, NVIDIA H200, batch 1";

// "gpt-oss-20b" or "gpt-oss-120b" for a model of that shape, "" for any other.
std::string published_model(const ModelShape& shape);

// The table's figure for EP `gpus` DP 1 TP `gpus`; nothing where the table has none.
std::optional<PublishedPrefill> published_prefill(const std::string& model, int gpus, int tokens);

}  // namespace rose
