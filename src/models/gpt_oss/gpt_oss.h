// gpt-oss: pre-norm transformer, grouped-query attention with sinks and alternating windows, mixture of experts
// (spec: model.md 4).
//
// Tensor parallelism: each rank holds its heads of q, k, v and of the sinks, its columns of the output matrix, and its
// experts (or its part of their intermediate width). Both partial sums meet in the all-reduce of the norm that follows.
// Embedding, norms, router and unembedding are whole on every rank, so every rank ends with the same logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "models/gpt_oss/config.h"
#include "models/gpt_oss/weights.h"
#include "models/model.h"
#include "ops/attention/attention.h"
#include "ops/decode_layers/decode_layers.h"
#include "ops/rope_append/rope_append.h"

namespace rose {

ModelShape gpt_oss_shape(const GptOssConfig& config);
std::vector<KvSetSpec> gpt_oss_kv_sets(const GptOssConfig& config);

class GptOss final : public Model {
 public:
  // Loads this rank's weights. Throws StartError when config, plan or weights do not fit.
  GptOss(WeightSource& source, const ModelOptions& options, const Stream& stream, const Progress& progress);

  const ModelShape& shape() const override { return shape_; }
  std::vector<KvSetSpec> kv_sets() const override { return kv_sets_; }
  int kv_heads_of_rank() const override { return kv_heads_; }
  std::size_t weight_bytes() const override { return arena_->bytes_total(); }

  std::size_t scratch_bytes(const ModelLimits& limits) const override;
  void take_scratch(const ModelLimits& limits, Arena& arena) override;
  void forward(const Batch& batch, KvCache& kv, const Stream& stream, Communicator& communicator,
               const ModelOutputs& out) override;

 private:
  struct Activations {
    Tensor residual;         // [rows, hidden]
    Tensor x;                // [rows, hidden] normed
    Tensor qkv;              // [rows, (heads + 2 kv_heads) * head_dim] of this rank
    Tensor q;                // [rows, heads, head_dim] rotated
    Tensor attended;         // [rows, heads * head_dim]
    Tensor y;                // [rows, hidden] this rank's part of a sum
    ops::Routing routing;    // [rows, experts_per_token]
    Tensor experts_scratch;  // f32
    Tensor linear_scratch;   // u8; empty where no linear needs it
  };

  using VisitActivation =
      std::function<void(std::string_view name, Tensor& slot, DType dtype, std::initializer_list<std::int64_t> sizes)>;

  class LoadStaging;
  struct LoadedBytes {
    std::size_t kept = 0;
    std::size_t staged = 0;
  };

  bool rounded(const WeightSpec& spec) const;  // to dense_format_, when loaded
  LoadedBytes loaded_bytes(const WeightSpec& spec, const ModelOptions& options) const;
  void load(WeightSource& source, const ModelOptions& options, std::size_t staging_bytes, const Progress& progress);
  void list_decode_layers(const ModelOptions& options);
  bool takes_decode_layers(const Batch& batch) const;
  void take_expert_scales(const LoadStaging& staging, const ModelOptions& options);
  void visit_activations(const ModelLimits& limits, Activations& activations, const VisitActivation& visit) const;
  Activations activations_of(std::int64_t rows) const;
  // From the embedded rows to the last layer's sums: a.residual, and in `delta` what is still to be added.
  void run_layers(const Batch& batch, KvCache& kv, const Stream& stream, Communicator& communicator, Activations& a,
                  Tensor& delta);
  ops::AttentionWorkShape attention_work_shape(const ModelLimits& limits) const;
  std::vector<ops::AttentionPlan> plan_attention(const Batch& batch, KvCache& kv, const Stream& stream) const;

  GptOssConfig config_;
  ModelShape shape_;
  std::vector<KvSetSpec> kv_sets_;
  Stream stream_;  // of the weights' device
  DType activation_dtype_;
  WeightFormat dense_format_;
  int ranks_ = 1;
  int heads_ = 0;                  // of this rank
  int kv_heads_ = 0;               // of this rank
  std::int64_t intermediate_ = 0;  // of this rank
  std::unique_ptr<Arena> arena_;   // weights and the RoPE table
  GptOssWeights weights_;
  ops::Rope rope_;
  ops::ForcedRouting forced_routing_;
  std::vector<ops::DecodeLayer> decode_layers_;  // empty: steps of one row are like any other
  void* decode_layers_work_ = nullptr;
  std::int64_t rows_max_ = 0;
  Activations activations_;                         // of rows_max_ rows
  std::vector<ops::AttentionWork> attention_work_;  // by KV set
};

}  // namespace rose
