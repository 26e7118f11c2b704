#include "ops/sample/sample.h"

#include "ops/check.h"
#include "ops/sample/sample_cuda.h"

namespace rose::ops {

void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out) {
  check_tensor(stream, "sample: logits", in.logits, {DType::kF32}, {-1, -1});
  const std::int64_t rows = in.logits.size(0);
  CHECK(rows == 0 || in.rows != nullptr, "sample: no rows");
  CHECK(in.logits.size(1) > 0, "sample: an empty vocabulary");
  if (!in.masks.empty()) {
    check_tensor(stream, "sample: masks", in.masks, {DType::kI32}, {-1, (in.logits.size(1) + 31) / 32});
  }
  check_tensor(stream, "sample: tokens", out.tokens, {DType::kI32}, {rows});
  if (!out.logprobs.empty()) check_tensor(stream, "sample: logprobs", out.logprobs, {DType::kF32}, {rows});
  if (!out.top_tokens.empty()) {
    check_tensor(stream, "sample: top_tokens", out.top_tokens, {DType::kI32}, {rows, kTopLogprobsMax});
    check_tensor(stream, "sample: top_logprobs", out.top_logprobs, {DType::kF32}, {rows, kTopLogprobsMax});
  }
  if (!out.last_tokens.empty()) check_tensor(stream, "sample: last_tokens", out.last_tokens, {DType::kI32}, {-1});
  switch (stream.device().kind) {
    case DeviceKind::kCpu:
      ref::sample(stream, in, out);
      return;
    case DeviceKind::kCuda:
      cuda::sample(stream, in, out);
      return;
  }
}

}  // namespace rose::ops
