#include "models/gpt_oss/gpt_oss.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/place.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/experts/experts.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/quantize_weight/quantize_weight.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/route/route.h"

namespace rose {

// Where weights lie as stored on their way into the model: matrices before they are rounded to FP8, and on a GPU expert
// weights while their scales are brought into the order that its kernels read.
class GptOss::LoadStaging {
 public:
  LoadStaging(const Stream& stream, std::size_t bytes) : stream_(stream) {
    if (bytes == 0) return;
    arena_ = std::make_unique<Arena>(stream.device(), bytes, "load staging");
    counts_ = std::make_unique<Arena>(stream.device(), 2 * Arena::kAlignment, "load counts");
    counts_->zero();
    inexact_tiles_ = counts_->tensor("inexact tiles", DType::kI32, {1});
    not_finite_ = counts_->tensor("values that are not finite", DType::kI32, {1});
  }
  Arena& arena() { return *arena_; }
  const std::vector<ops::ExpertScales>& scales() const { return scales_; }  // of the experts kept

  // The matrix `stored`, which was loaded into arena(), as FP8 in `kept`.
  Weight round(const WeightSpec& spec, const WeightSlice& slice, const Weight& stored, Arena& kept) {
    const Weight rounded = allocate_weight(spec, slice, {WeightFormat::kFp8, WeightFormat::kFp8}, kept);
    if (!stored.bias.empty()) copy_async(stream_, rounded.bias.raw(), stored.bias.raw(), stored.bias.bytes());
    ops::quantize_weight(stream_, stored, rounded, not_finite_);
    if (const int count = read(not_finite_); count > 0) {
      throw StartError(fmt::format("{} holds {} values that are not finite", spec.name, count));
    }
    arena_->reset();
    return rounded;
  }

  // Moves the experts' weight that was loaded into arena() to `kept`.
  void keep_experts(Weight& weight, Arena& kept) {
    const auto moved = [&](const Tensor& from) {
      const Tensor to = from.on(kept.take("expert weights", from.bytes()), from.device());
      copy_async(stream_, to.raw(), from.raw(), from.bytes());
      return to;
    };
    const Weight stored = weight;
    weight.payload = moved(stored.payload);
    if (!stored.bias.empty()) weight.bias = moved(stored.bias);
    scales_.push_back(ops::prepare_expert_scales(stream_, stored, kept, inexact_tiles_));
    weight.scales = {};
    arena_->reset();
  }

  int inexact_tiles() const { return arena_ == nullptr ? 0 : read(inexact_tiles_); }

 private:
  int read(const Tensor& counter) const {
    std::int32_t count = 0;
    copy_async(stream_, &count, counter.raw(), sizeof count);
    stream_.synchronize();
    return count;
  }

  Stream stream_;
  std::unique_ptr<Arena> arena_, counts_;
  Tensor inexact_tiles_, not_finite_;
  std::vector<ops::ExpertScales> scales_;
};

namespace {

// Plans that the weights allow, but the forward pass below does not.
void check_layout(const GptOssConfig& config, const ParallelPlan& plan) {
  check_plan(plan, {.heads = config.heads, .kv_heads = config.kv_heads, .experts = config.experts});
  if (plan.dp != 1) {
    throw StartError(
        fmt::format("plan {}: one gpt_oss model runs with dp 1; dp > 1 is several replicas of it", plan.describe()));
  }
  const int rank_columns = config.heads / plan.tp * config.head_dim;
  if (plan.tp > 1 && rank_columns % kMxfp4Group != 0) {
    throw StartError(fmt::format("plan {}: {} heads of {} are {} columns a rank, not a multiple of {}", plan.describe(),
                                 config.heads / plan.tp, config.head_dim, rank_columns, kMxfp4Group));
  }
}

}  // namespace

ModelShape gpt_oss_shape(const GptOssConfig& config) {
  return {.name = "gpt_oss",
          .layers = config.layers,
          .hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .experts = config.experts,
          .experts_per_token = config.experts_per_token,
          .vocabulary = config.vocabulary,
          .positions_max = config.positions_max};
}

std::vector<KvSetSpec> gpt_oss_kv_sets(const GptOssConfig& config) {
  std::vector<KvSetSpec> sets;
  for (int layer = 0; layer < config.layers; ++layer) {
    const int window = config.windows[static_cast<std::size_t>(layer)];
    auto set = std::find_if(sets.begin(), sets.end(), [&](const KvSetSpec& s) { return s.window == window; });
    if (set == sets.end()) set = sets.insert(sets.end(), KvSetSpec{.window = window, .layers = {}});
    set->layers.push_back(layer);
  }
  return sets;
}

GptOss::GptOss(WeightSource& source, const ModelOptions& options, const Stream& stream, const Progress& progress)
    : config_(read_gpt_oss_config(source.config())),
      shape_(gpt_oss_shape(config_)),
      kv_sets_(gpt_oss_kv_sets(config_)),
      stream_(stream),
      activation_dtype_(options.activations),
      dense_format_(options.dense_format),
      ranks_(options.plan.ranks()),
      rope_(config_.rope),
      forced_routing_(options.routing, config_.experts) {
  CHECK(activation_dtype_ == DType::kF32 || activation_dtype_ == DType::kBf16, "activations in {}",
        dtype_name(activation_dtype_));
  CHECK(dense_format_ == WeightFormat::kBf16 || dense_format_ == WeightFormat::kFp8, "dense matrices in {}",
        weight_format_name(dense_format_));
  check_layout(config_, options.plan);
  if (dense_format_ == WeightFormat::kFp8 && !stream.device().is_cpu() && config_.hidden % 16 != 0) {
    throw StartError(fmt::format("hidden_size {}: FP8 products on a GPU need a multiple of 16", config_.hidden));
  }
  CHECK(options.rank >= 0 && options.rank < ranks_, "rank {} of {}", options.rank, ranks_);
  heads_ = config_.heads / options.plan.tp;
  kv_heads_ = config_.kv_heads / options.plan.tp;

  std::size_t bytes = Arena::aligned(rope_.frequencies.size() * sizeof(float)), largest = 0;
  visit_weights(config_, weights_, [&](const WeightSpec& spec, Weight&) {
    const LoadedBytes of_weight = loaded_bytes(spec, options);
    bytes += of_weight.kept;
    largest = std::max(largest, of_weight.staged);
  });
  arena_ = std::make_unique<Arena>(stream.device(), bytes, fmt::format("weights of rank {}", options.rank));
  rope_.table = arena_->tensor("rope", DType::kF32, {static_cast<std::int64_t>(rope_.frequencies.size())});
  copy_async(stream, rope_.table.raw(), rope_.frequencies.data(), rope_.table.bytes());
  rope_.query_factor = config_.attention_scale() / ops::kScaleInQuery;  // rounded once, with the rotation
  load(source, options, largest, progress);
  stream.synchronize();  // the copy above reads memory of this object
}

// Bytes of a weight in the arena, and of the room that it passes through: sources give matrices in bf16 alone, and a
// GPU's kernels want the experts' scales in another order than any file has them.
GptOss::LoadedBytes GptOss::loaded_bytes(const WeightSpec& spec, const ModelOptions& options) const {
  const WeightSlice slice = slice_of(spec, options.plan, options.rank);
  const std::size_t stored = slice_bytes(spec, slice, options.expert_format);
  if (rounded(spec))
    return {.kept = slice_bytes(spec, slice, {options.expert_format, dense_format_}), .staged = stored};
  if (spec.kind != WeightKind::kExperts || stream_.device().is_cpu()) return {.kept = stored, .staged = 0};
  Weight shape;
  shape.format = options.expert_format;
  shape.experts = slice.experts.size();
  shape.out = slice.out();
  shape.in = slice.columns.size();
  const std::size_t scales = weight_sizes(shape.format, shape.experts, shape.out, shape.in).scales;
  return {.kept = stored - Arena::aligned(scales) + ops::prepared_scale_bytes(stream_, shape), .staged = stored};
}

bool GptOss::rounded(const WeightSpec& spec) const {
  return spec.kind == WeightKind::kMatrix &&
         WeightFormats(WeightFormat::kBf16, dense_format_).of(spec) != WeightFormat::kBf16;
}

void GptOss::load(WeightSource& source, const ModelOptions& options, std::size_t staging_bytes,
                  const Progress& progress) {
  const std::uint64_t total = arena_->bytes_total();
  std::uint64_t done = arena_->bytes_used();
  LoadStaging staging(stream_, staging_bytes);
  std::int64_t first_expert = 0;  // the same in every layer
  visit_weights(config_, weights_, [&](const WeightSpec& spec, Weight& slot) {
    const WeightSlice slice = slice_of(spec, options.plan, options.rank);
    const LoadedBytes bytes = loaded_bytes(spec, options);
    Arena& arena = bytes.staged > 0 ? staging.arena() : *arena_;
    slot = source.load(spec, options.plan, options.rank, options.expert_format, arena, stream_);
    if (rounded(spec)) {
      slot = staging.round(spec, slice, slot, *arena_);
    } else if (bytes.staged > 0) {
      staging.keep_experts(slot, *arena_);
    }
    if (spec.kind == WeightKind::kExperts) first_expert = slice.experts.begin;
    // Not what the arena has given out: a source may hand out a weight where its file lies mapped.
    done += bytes.kept;
    if (progress) progress(done, total);
  });
  CHECK(done == total, "{} of {} bytes of weights loaded", done, total);
  take_expert_scales(staging, options);

  int index = 0;
  for (GptOssLayer& layer : weights_.layers) {
    layer.index = index++;
    layer.experts.first_expert = first_expert;
    const int window = config_.windows[static_cast<std::size_t>(layer.index)];
    while (kv_sets_[static_cast<std::size_t>(layer.kv_set)].window != window) ++layer.kv_set;
  }
  intermediate_ = weights_.layers.front().experts.down.in;
  list_decode_layers(options);
}

void GptOss::list_decode_layers(const ModelOptions& options) {
  const bool forced = options.routing != ops::RoutingMode::kNatural;
  if (!options.fused_decode || forced || ranks_ > 1 || activation_dtype_ != DType::kBf16) return;
  for (const GptOssLayer& layer : weights_.layers) {
    decode_layers_.push_back({.attention_norm = &layer.attention_norm,
                              .qkv = &layer.qkv,
                              .sinks = &layer.sinks,
                              .output = &layer.output,
                              .mlp_norm = &layer.mlp_norm,
                              .router = &layer.router,
                              .experts = &layer.experts,
                              .window = config_.windows[static_cast<std::size_t>(layer.index)],
                              .kv_set = layer.kv_set});
  }
  const ops::DecodeLayersShape shape{.hidden = config_.hidden,
                                     .intermediate = static_cast<int>(intermediate_),
                                     .heads = heads_,
                                     .kv_heads = kv_heads_,
                                     .head_dim = config_.head_dim,
                                     .experts = config_.experts,
                                     .experts_per_token = config_.experts_per_token};
  if (!ops::has_decode_layers(stream_, shape, decode_layers_)) decode_layers_.clear();
}

// In the order in which the weights were visited: gate_up and down of each layer.
void GptOss::take_expert_scales(const LoadStaging& staging, const ModelOptions& options) {
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    ops::ExpertWeights& experts = weights_.layers[i].experts;
    experts.bf16_activations = options.bf16_experts;
    if (staging.scales().empty()) continue;
    experts.gate_up_scales = staging.scales().at(2 * i);
    experts.down_scales = staging.scales().at(2 * i + 1);
  }
  const int inexact = staging.inexact_tiles();
  if (inexact > 0 && !options.bf16_experts) {
    spdlog::warn(
        "{} tiles of 128 x 256 expert weights span more powers of two than FP8 holds: their smallest weights "
        "are rounded. Experts in bf16 are exact",
        inexact);
  }
}

ops::AttentionWorkShape GptOss::attention_work_shape(const ModelLimits& limits) const {
  return {.rows_max = limits.rows_max, .sequences_max = limits.sequences_max, .kv_heads = kv_heads_};
}

void GptOss::visit_activations(const ModelLimits& limits, Activations& a, const VisitActivation& visit) const {
  const std::int64_t rows = limits.rows_max;
  const std::int64_t attended = std::int64_t{heads_} * config_.head_dim;
  const std::int64_t kv = std::int64_t{kv_heads_} * config_.head_dim;
  const std::int64_t k = config_.experts_per_token;
  visit("residual", a.residual, activation_dtype_, {rows, config_.hidden});
  visit("x", a.x, activation_dtype_, {rows, config_.hidden});
  visit("qkv", a.qkv, activation_dtype_, {rows, attended + 2 * kv});
  visit("q", a.q, activation_dtype_, {rows, heads_, config_.head_dim});
  visit("attended", a.attended, activation_dtype_, {rows, attended});
  visit("y", a.y, activation_dtype_, {rows, config_.hidden});
  visit("routing.experts", a.routing.experts, DType::kI32, {rows, k});
  visit("routing.weights", a.routing.weights, DType::kF32, {rows, k});
  if (!stream_.device().is_cpu()) visit("routing.logits", a.routing.logits, DType::kF32, {rows, config_.experts});
  visit("experts scratch", a.experts_scratch, DType::kF32,
        {ops::experts_scratch_elements(stream_, {.rows_max = rows,
                                                 .experts_per_token = k,
                                                 .experts_held = weights_.layers.front().experts.down.experts,
                                                 .hidden = config_.hidden,
                                                 .intermediate = intermediate_})});
  const std::size_t linear_scratch =
      ops::linear_scratch_bytes(stream_, dense_format_, std::max<std::int64_t>(rows, limits.logit_rows_max),
                                std::max<std::int64_t>(config_.hidden, attended));
  if (linear_scratch > 0) {
    visit("linear scratch", a.linear_scratch, DType::kU8, {static_cast<std::int64_t>(linear_scratch)});
  }
}

std::size_t GptOss::scratch_bytes(const ModelLimits& limits) const {
  std::size_t bytes = 0;
  Activations unused;
  visit_activations(limits, unused,
                    [&](std::string_view, Tensor&, DType dtype, std::initializer_list<std::int64_t> sizes) {
                      std::size_t elements = 1;
                      for (const std::int64_t size : sizes) elements *= static_cast<std::size_t>(size);
                      bytes += Arena::aligned(elements * dtype_bytes(dtype));
                    });
  if (!decode_layers_.empty()) bytes += Arena::aligned(ops::decode_layers_work_bytes());
  return bytes + kv_sets_.size() * Arena::aligned(ops::attention_work_bytes(stream_, attention_work_shape(limits)));
}

void GptOss::take_scratch(const ModelLimits& limits, Arena& arena) {
  CHECK(rows_max_ == 0, "scratch taken twice");
  rows_max_ = limits.rows_max;
  visit_activations(limits, activations_,
                    [&](std::string_view name, Tensor& slot, DType dtype, std::initializer_list<std::int64_t> sizes) {
                      slot = arena.tensor(name, dtype, sizes);
                    });
  if (!decode_layers_.empty()) decode_layers_work_ = arena.take("decode layers", ops::decode_layers_work_bytes());
  const ops::AttentionWorkShape shape = attention_work_shape(limits);
  for (std::size_t set = 0; set < kv_sets_.size(); ++set) {
    attention_work_.push_back(
        {.shape = shape, .memory = arena.take("attention work", ops::attention_work_bytes(stream_, shape))});
  }
}

std::vector<ops::AttentionPlan> GptOss::plan_attention(const Batch& batch, KvCache& kv, const Stream& stream) const {
  std::vector<ops::AttentionPlan> plans = batch.plans;
  for (std::size_t set = 0; set < plans.size(); ++set) {
    plans[set].work = attention_work_[set];
    ops::plan_attention(stream, plans[set], kv.shape().page_size);
  }
  return plans;
}

GptOss::Activations GptOss::activations_of(std::int64_t rows) const {
  CHECK(rows > 0 && rows <= rows_max_, "a step of {} rows, scratch for {}", rows, rows_max_);
  Activations a = activations_;
  for (Tensor* tensor : {&a.residual, &a.x, &a.qkv, &a.q, &a.attended, &a.y, &a.routing.experts, &a.routing.weights}) {
    *tensor = tensor->rows(0, rows);
  }
  if (!a.routing.logits.empty()) a.routing.logits = a.routing.logits.rows(0, rows);
  return a;
}

bool GptOss::takes_decode_layers(const Batch& batch) const {
  return !decode_layers_.empty() && batch.rows == 1 &&
         std::ranges::all_of(batch.plans, [](const ops::AttentionPlan& plan) { return plan.sequences == 1; });
}

void GptOss::run_layers(const Batch& batch, KvCache& kv, const Stream& s, Communicator& communicator, Activations& a,
                        Tensor& delta) {
  const float epsilon = config_.epsilon;
  const std::vector<ops::AttentionPlan> plans = plan_attention(batch, kv, s);
  ThreadPlace& place = current_place();
  for (const GptOssLayer& layer : weights_.layers) {
    place.set({.layer = layer.index, .rows = batch.rows});
    const auto set = static_cast<std::size_t>(layer.kv_set);
    KvLayer& cache = kv.layer(layer.index);
    place.enter("attention norm");
    ops::reduce_add_rms_norm(s, communicator, delta, a.residual, layer.attention_norm.payload, epsilon, a.x);
    place.enter("qkv");
    ops::linear(s, a.x, layer.qkv, a.qkv, a.linear_scratch);
    place.enter("rope");
    ops::rope_append(s, a.qkv, batch.positions, batch.slots[set], rope_, cache, a.q);
    place.enter("attention");
    ops::attention(s, a.q, cache, plans[set], layer.sinks.payload, ops::kScaleInQuery, a.attended);
    place.enter("output");
    ops::linear(s, a.attended, layer.output, a.y, a.linear_scratch);
    place.enter("mlp norm");
    ops::reduce_add_rms_norm(s, communicator, a.y, a.residual, layer.mlp_norm.payload, epsilon, a.x);
    place.enter("router");
    ops::route(s, a.x, layer.router, a.routing);
    ops::force_routing(s, forced_routing_, layer.index, a.routing);
    place.enter("experts");
    ops::experts(s, a.x, a.routing, layer.experts, config_.swiglu_limit, a.experts_scratch, a.y);
    delta = a.y;
  }
}

void GptOss::forward(const Batch& batch, KvCache& kv, const Stream& s, Communicator& communicator,
                     const ModelOutputs& out) {
  CHECK(communicator.size() == ranks_, "{} ranks in the plan, {} in the communicator", ranks_, communicator.size());
  Activations a = activations_of(batch.rows);
  ThreadPlace& place = current_place();
  place.set({.rows = batch.rows, .operation = "embedding"});
  ops::embed(s, batch.tokens, weights_.embedding.payload, a.residual);
  Tensor delta;  // empty: nothing to add
  if (takes_decode_layers(batch)) {
    place.enter("the one kernel through all layers");
    ops::decode_layers(s, decode_layers_, {.position = batch.positions, .slots = batch.slots, .plans = batch.plans},
                       rope_,
                       {.epsilon = config_.epsilon,
                        .attention_scale = config_.attention_scale(),
                        .swiglu_limit = config_.swiglu_limit},
                       kv, decode_layers_work_, a.residual);
  } else {
    run_layers(batch, kv, s, communicator, a, delta);
  }
  place.set({.rows = batch.rows, .operation = "final norm"});
  ops::reduce_add_rms_norm(s, communicator, delta, a.residual, weights_.final_norm.payload, config_.epsilon, a.x);
  if (batch.logit_rows.empty()) return;  // a chunk in the middle of a prompt
  place.enter("unembedding");
  ops::gather_rows(s, a.x, batch.logit_rows, out.hidden);
  ops::linear(s, out.hidden, weights_.unembedding, out.logits, a.linear_scratch);
}

}  // namespace rose
