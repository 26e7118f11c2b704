// The same forward pass from the reference operations alone (ops::ref), one rank. Slow; for tests only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/gpt_oss/gpt_oss.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/experts/experts.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/route/route.h"

namespace rose::testing {

class ReferenceGptOss final : public Model {
 public:
  explicit ReferenceGptOss(WeightSource& source)
      : config_(read_gpt_oss_config(source.config())),
        shape_(gpt_oss_shape(config_)),
        kv_sets_(gpt_oss_kv_sets(config_)),
        rope_(config_.rope) {
    std::size_t bytes = 0;
    visit_weights(config_, weights_, [&](const WeightSpec& spec, Weight&) {
      bytes += slice_bytes(spec, slice_of(spec, {}, 0), WeightFormat::kMxfp4);
    });
    arena_ = std::make_unique<Arena>(Device{}, bytes, "weights of the reference");
    visit_weights(config_, weights_, [&](const WeightSpec& spec, Weight& slot) {
      slot = source.load(spec, {}, 0, WeightFormat::kMxfp4, *arena_, Stream::cpu(1));
    });
  }

  const ModelShape& shape() const override { return shape_; }
  std::vector<KvSetSpec> kv_sets() const override { return kv_sets_; }
  int kv_heads_of_rank() const override { return config_.kv_heads; }
  std::size_t weight_bytes() const override { return arena_->bytes_used(); }
  std::size_t weight_bytes_expected() const { return arena_->bytes_total(); }
  std::size_t scratch_bytes(const ModelLimits&) const override { return 0; }
  void take_scratch(const ModelLimits&, Arena&) override {}

  void forward(const Batch& batch, KvCache& kv, const Stream& s, Communicator& communicator,
               const ModelOutputs& out) override {
    const std::int64_t rows = batch.rows;
    const std::int64_t attended = std::int64_t{config_.heads} * config_.head_dim;
    Buffer residual({rows, config_.hidden}), x({rows, config_.hidden}), y({rows, config_.hidden});
    Buffer qkv({rows, attended + 2 * std::int64_t{config_.kv_heads} * config_.head_dim});
    Buffer q({rows, config_.heads, config_.head_dim}), mixed({rows, attended});
    Buffer expert_ids({rows, config_.experts_per_token}, DType::kI32);
    Buffer expert_weights({rows, config_.experts_per_token});
    ops::Routing routing{expert_ids.tensor, expert_weights.tensor};

    ops::ref::embed(s, batch.tokens, weights_.embedding.payload, residual.tensor);
    Tensor delta;
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const GptOssLayer& layer = weights_.layers[i];
      KvLayer& cache = kv.layer(static_cast<int>(i));
      const auto set = static_cast<std::size_t>(kv.set_of(static_cast<int>(i)));
      norm(s, communicator, delta, residual.tensor, layer.attention_norm, x.tensor);
      ops::ref::linear(s, x.tensor, layer.qkv, qkv.tensor);
      ops::ref::rope_append(s, qkv.tensor, batch.positions, batch.slots[set], rope_, cache, q.tensor);
      ops::ref::attention(s, q.tensor, cache, batch.plans[set], layer.sinks.payload, config_.attention_scale(),
                          mixed.tensor);
      ops::ref::linear(s, mixed.tensor, layer.output, y.tensor);
      norm(s, communicator, y.tensor, residual.tensor, layer.mlp_norm, x.tensor);
      ops::ref::route(s, x.tensor, layer.router, routing);
      ops::ref::experts(s, x.tensor, routing, layer.experts, config_.swiglu_limit, y.tensor);
      delta = y.tensor;
    }
    norm(s, communicator, delta, residual.tensor, weights_.final_norm, x.tensor);
    if (batch.logit_rows.empty()) return;
    ops::ref::gather_rows(s, x.tensor, batch.logit_rows, out.hidden);
    ops::ref::linear(s, out.hidden, weights_.unembedding, out.logits);
  }

 private:
  struct Buffer {
    explicit Buffer(std::initializer_list<std::int64_t> sizes, DType dtype = DType::kF32) {
      std::int64_t elements = 1;
      for (const std::int64_t size : sizes) elements *= size;
      memory.resize(static_cast<std::size_t>(elements));
      tensor = Tensor(memory.data(), dtype, {}, sizes);
    }
    std::vector<float> memory;
    Tensor tensor;
  };

  void norm(const Stream& s, Communicator& communicator, const Tensor& delta, const Tensor& residual,
            const Weight& weight, const Tensor& out) const {
    ops::ref::reduce_add_rms_norm(s, communicator, delta, residual, weight.payload, config_.epsilon, out);
  }

  GptOssConfig config_;
  ModelShape shape_;
  std::vector<KvSetSpec> kv_sets_;
  ops::Rope rope_;
  std::unique_ptr<Arena> arena_;
  GptOssWeights weights_;
};

}  // namespace rose::testing
