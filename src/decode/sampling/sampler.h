// The device half of sampling, one a rank: the table of last tokens and what a step's sampling leaves behind.
#pragma once

#include "device/stream.h"
#include "ops/sample/sample.h"
#include "tensor/arena.h"

namespace rose {

struct SamplerLimits {
  int slots = 0;           // sequences running at once
  int logit_rows_max = 0;  // of one step
};

class Sampler {
 public:
  Sampler(const SamplerLimits& limits, Arena& arena);
  static std::size_t bytes(const SamplerLimits& limits);

  // tokens[r] = the last token of slot sources[r], where sources[r] >= 0.
  void resolve(const Stream& stream, const Tensor& sources, const Tensor& tokens) const;

  // Samples in.logits; the outputs' first rows are valid until the next call.
  void sample(const Stream& stream, const ops::SampleInputs& in) const;

  // Tensors of logit_rows_max rows.
  const ops::SampleOutputs& outputs() const { return outputs_; }

 private:
  ops::SampleOutputs outputs_;
};

}  // namespace rose
