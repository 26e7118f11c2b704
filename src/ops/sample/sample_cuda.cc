#include "ops/sample/sample_cuda.h"

#include <cstddef>
#include <limits>

#include "device/cuda/gpu.h"
#include "ops/sample/sample_params.cuh"

namespace rose::ops::cuda {
namespace {

#define ROSE_SAME_PLACE(Device, Host, member) static_assert(offsetof(Device, member) == offsetof(Host, member))
static_assert(sizeof(SampleOptions) == sizeof(SampleRow));
ROSE_SAME_PLACE(SampleOptions, SampleRow, temperature);
ROSE_SAME_PLACE(SampleOptions, SampleRow, top_p);
ROSE_SAME_PLACE(SampleOptions, SampleRow, min_p);
ROSE_SAME_PLACE(SampleOptions, SampleRow, top_k);
ROSE_SAME_PLACE(SampleOptions, SampleRow, seed);
ROSE_SAME_PLACE(SampleOptions, SampleRow, counter);
ROSE_SAME_PLACE(SampleOptions, SampleRow, slot);
ROSE_SAME_PLACE(SampleOptions, SampleRow, top_logprobs);
ROSE_SAME_PLACE(SampleOptions, SampleRow, mask_row);
ROSE_SAME_PLACE(SampleOptions, SampleRow, adjustments_begin);
ROSE_SAME_PLACE(SampleOptions, SampleRow, adjustments_end);
static_assert(sizeof(SampleAdjustment) == sizeof(LogitAdjustment));
ROSE_SAME_PLACE(SampleAdjustment, LogitAdjustment, token);
ROSE_SAME_PLACE(SampleAdjustment, LogitAdjustment, add);
ROSE_SAME_PLACE(SampleAdjustment, LogitAdjustment, repetition);
#undef ROSE_SAME_PLACE
static_assert(SampleConfig::kTopMax == kTopLogprobsMax);

// Tokens of a lane: enough for all, and odd.
int chunk_of(std::int64_t vocabulary) {
  constexpr std::int64_t kLanes = std::int64_t{SampleConfig::kSegments} * 32;
  return static_cast<int>((vocabulary + kLanes - 1) / kLanes) | 1;
}

template <class T>
T* pointer_or_null(const Tensor& tensor) {
  return tensor.empty() ? nullptr : tensor.as<T>();
}
std::int64_t stride_of(const Tensor& tensor) { return tensor.empty() ? 0 : tensor.stride(0); }

}  // namespace

void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out) {
  const std::int64_t rows = in.logits.size(0), vocabulary = in.logits.size(1);
  CHECK(vocabulary > 0 && vocabulary <= SampleConfig::kVocabularyMax &&
            rows <= std::numeric_limits<int>::max() / SampleConfig::kBlocks,
        "sample on {}: {} rows of {} logits, at most {}", stream.device().name(), rows, vocabulary,
        SampleConfig::kVocabularyMax);
  if (rows == 0) return;
  SampleParams params{};
  params.logits = in.logits.as<float>();
  params.stride = in.logits.stride(0);
  params.options = reinterpret_cast<const SampleOptions*>(in.rows);
  params.adjustments = reinterpret_cast<const SampleAdjustment*>(in.adjustments);
  params.masks = reinterpret_cast<const std::uint32_t*>(pointer_or_null<std::int32_t>(in.masks));
  params.mask_stride = stride_of(in.masks);
  params.mask_rows = in.masks.empty() ? 0 : static_cast<int>(in.masks.size(0));
  params.tokens = out.tokens.as<std::int32_t>();
  params.tokens_stride = stride_of(out.tokens);
  params.logprobs = pointer_or_null<float>(out.logprobs);
  params.logprobs_stride = stride_of(out.logprobs);
  params.top_tokens = pointer_or_null<std::int32_t>(out.top_tokens);
  params.top_tokens_stride = stride_of(out.top_tokens);
  params.top_logprobs = pointer_or_null<float>(out.top_logprobs);
  params.top_logprobs_stride = stride_of(out.top_logprobs);
  params.last_tokens = pointer_or_null<std::int32_t>(out.last_tokens);
  params.last_tokens_stride = stride_of(out.last_tokens);
  params.slots = out.last_tokens.empty() ? 0 : static_cast<int>(out.last_tokens.size(0));
  params.rows = static_cast<int>(rows);
  params.vocabulary = static_cast<int>(vocabulary);
  params.chunk = chunk_of(vocabulary);
  params.aligned = reinterpret_cast<std::uintptr_t>(params.logits) % 16 == 0 && params.stride % 4 == 0;
  if (params.aligned) launch_sample_plain(params, rose::cuda::native_stream(stream));
  launch_sample(params, rose::cuda::native_stream(stream));
}

}  // namespace rose::ops::cuda
