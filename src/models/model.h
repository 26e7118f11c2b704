// A model is weights and one forward function: the only virtual class on the compute path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/stream.h"
#include "kv/kv_cache.h"
#include "models/batch.h"
#include "ops/force_routing/force_routing.h"
#include "parallel/communicator.h"
#include "parallel/plan.h"
#include "tensor/arena.h"
#include "weights/source.h"
#include "weights/spec.h"

namespace rose {

struct ModelShape {
  std::string name;  // "gpt_oss"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int experts = 0;
  int experts_per_token = 0;
  int vocabulary = 0;
  int positions_max = 0;  // longest context
};

struct ModelLimits {
  int rows_max = 512;  // rows of one step
  int logit_rows_max = 256;
  int sequences_max = 64;  // of one step
};

struct ModelOptions {
  ParallelPlan plan;
  int rank = 0;
  WeightFormat expert_format = WeightFormat::kMxfp4;
  DType activations = DType::kF32;  // CPU: f32; GPU: bf16
  bool bf16_experts = false;        // GPU: the experts' activations stay bf16, not rounded to e4m3
  // Of qkv, attention output and unembedding: bf16 as stored, or fp8, to which they are rounded when they are loaded;
  // a GPU then rounds their inputs to e4m3 too.
  WeightFormat dense_format = WeightFormat::kBf16;
  ops::RoutingMode routing = ops::RoutingMode::kNatural;  // otherwise for benchmarks only
  bool fused_decode = true;  // GPU: steps of one row take one kernel through all layers, where there is one
};

struct ModelOutputs {
  Tensor hidden;  // [m, hidden] normed rows before the unembedding, in ModelOptions::activations
  Tensor logits;  // [m, vocabulary] f32
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelShape& shape() const = 0;
  virtual std::vector<KvSetSpec> kv_sets() const = 0;
  virtual int kv_heads_of_rank() const = 0;
  virtual std::size_t weight_bytes() const = 0;  // of this rank

  // Activations for up to limits.rows_max rows; called once, before the first forward.
  virtual std::size_t scratch_bytes(const ModelLimits& limits) const = 0;
  virtual void take_scratch(const ModelLimits& limits, Arena& arena) = 0;

  // Appends the batch's rows to kv and writes logits of batch.logit_rows. No allocation. Collective over the
  // communicator.
  virtual void forward(const Batch& batch, KvCache& kv, const Stream& stream, Communicator& communicator,
                       const ModelOutputs& out) = 0;
};

// The list of models is in models.cc. Picks by config.json's model_type; weights go into `arena`-s that the model owns.
// progress counts this rank's weight bytes. Throws StartError for an unknown model, or a config or plan that does not
// fit.
std::unique_ptr<Model> load_model(WeightSource& source, const ModelOptions& options, const Stream& stream,
                                  const Progress& progress);

// The shape, checked, without loading weights.
ModelShape model_shape(const WeightSource& source);

// Every weight of the model that `source` describes, in file order.
void visit_model_specs(const WeightSource& source, const SpecVisitor& visit);

}  // namespace rose
