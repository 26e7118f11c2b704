// From a path to a running engine: what serve, chat, generate and bench share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "engine/router.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"
#include "weights/source.h"

namespace CLI {
class App;
}

namespace rose {

struct LoadOptions {
  std::string checkpoint;           // folder or rose file; empty: the embedded model
  std::string random_weights;       // 20b, 120b: that model's shapes with random numbers, made on the device
  std::string device = "auto";      // auto, cpu, cuda
  int threads = 0;                  // per rank on the CPU; 0: cores / ranks
  bool bf16_experts = false;        // GPU: ModelOptions::bf16_experts
  bool fused_decode = true;         // GPU: ModelOptions::fused_decode
  std::string routing = "natural";  // ops::RoutingMode; benchmarks only
  int tp = 1;
  int ep = 0;                           // 0: as tp
  std::string experts;                  // mxfp4, fp8, bf16; empty: as stored
  std::string dense = "bf16";           // ModelOptions::dense_format: bf16, fp8
  int max_context = 0;                  // 0: the model's, as far as the KV memory goes
  std::string kv_cache_dtype = "auto";  // bf16, fp8; auto: bf16
  double kv_memory_gib = 0;             // 0: 1 on the CPU; on a GPU memory_share of what weights and activations leave
  double memory_share = 0.9;
  int rows_max = 0;       // rows of one step; 0: 512 on the CPU, 8192 on a GPU
  int sequences_max = 0;  // 0: 64 on the CPU, 256 on a GPU
  int queue_max = 256;    // requests waiting
  bool prefix_cache = true;
  bool graphs = true;                     // EngineOptions::graphs
  bool hash_logits = false;               // EngineOptions::hash_logits; benchmarks only
  std::optional<double> watchdog_s = {};  // EngineOptions::watchdog_s; nothing: 300 on a GPU, never on the CPU
};

DType kv_dtype(const LoadOptions& options);

// The options above on a sub-command, with the checkpoint as positional.
void add_load_options(CLI::App& command, LoadOptions& options);

struct LoadedModel {
  std::string name;  // last part of the path
  ModelShape shape;
  Device device;  // of rank 0
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatFormat> chat_format;
  std::unique_ptr<TokenEngine> engine;
  std::size_t weight_bytes = 0;  // all ranks
  double dense_bytes = 0;        // weights that every decode step reads: all but experts and embedding
  double expert_bytes = 0;       // all experts of all layers
  double load_s = 0;
  std::string summary;  // a few lines for the terminal: model, layout, memory table
};

// Throws StartError. `progress` counts weight bytes.
LoadedModel load(const LoadOptions& options, const Progress& progress);

// A progress bar on stderr where that is a terminal; silent elsewhere.
Progress terminal_progress(const std::string& what);

}  // namespace rose
