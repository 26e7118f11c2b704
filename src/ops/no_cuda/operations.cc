// The CUDA side of the operations in a build without it: what the dispatches call, and never reach.
#include "ops/attention/attention_cuda.h"
#include "ops/check.h"
#include "ops/copy_pages/copy_pages_cuda.h"
#include "ops/decode_layers/decode_layers_cuda.h"
#include "ops/embed/embed_cuda.h"
#include "ops/experts/experts_cuda.h"
#include "ops/gather_rows/gather_rows_cuda.h"
#include "ops/linear/linear_cuda.h"
#include "ops/reduce_add_rms_norm/reduce_add_rms_norm_cuda.h"
#include "ops/rope_append/rope_append_cuda.h"
#include "ops/route/route_cuda.h"
#include "ops/sample/sample_cuda.h"

namespace rose::ops::cuda {

void resolve_tokens(const Stream& s, const Tensor&, const Tensor&, const Tensor&) { no_kernel("resolve_tokens", s); }
void embed(const Stream& s, const Tensor&, const Tensor&, const Tensor&) { no_kernel("embed", s); }
void add_rms_norm(const Stream& s, const Tensor&, const Tensor&, const Tensor&, float, const Tensor&) {
  no_kernel("reduce_add_rms_norm", s);
}
void linear(const Stream& s, const Tensor&, const Weight&, const Tensor&) { no_kernel("linear", s); }
void rope_append(const Stream& s, const Tensor&, const Tensor&, const Tensor&, const Rope&, KvLayer&, const Tensor&) {
  no_kernel("rope_append", s);
}
std::size_t attention_work_bytes(const Stream& s, const AttentionWorkShape&) { no_kernel("attention", s); }
void plan_attention(const Stream& s, const AttentionPlan&, const AttentionWork&, int) { no_kernel("attention", s); }
void attention(const Stream& s, const AttentionCall&) { no_kernel("attention", s); }
void route(const Stream& s, const Tensor&, const Weight&, Routing&, void*) { no_kernel("route", s); }
std::int64_t expert_scale_bytes(WeightFormat, std::int64_t, std::int64_t, std::int64_t) { return 0; }
std::int64_t expert_base_bytes(std::int64_t, std::int64_t, std::int64_t) { return 0; }
ExpertScales prepare_scales(const Stream& s, const Weight&, void*, void*, int*) { no_kernel("experts", s); }
std::size_t expert_work_bytes(const ExpertWorkShape&) { return 0; }
void experts(const Stream& s, const ExpertCall&) { no_kernel("experts", s); }
void gather_rows(const Stream& s, const Tensor&, const Tensor&, const Tensor&) { no_kernel("gather_rows", s); }
void sample(const Stream& s, const SampleInputs&, const SampleOutputs&) { no_kernel("sample", s); }
bool has_decode_layers(const Stream&, const DecodeLayersShape&, int) { return false; }
std::size_t decode_layers_work_bytes() { return 0; }
void decode_layers(const Stream& s, const DecodeLayersCall&) { no_kernel("decode_layers", s); }
void copy_pages(const Stream& s, const KvLayer&, KvLayer&, const Tensor&) { no_kernel("copy_pages", s); }

}  // namespace rose::ops::cuda
