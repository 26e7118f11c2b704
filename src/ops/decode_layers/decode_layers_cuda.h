// The CUDA side of decode_layers.h; arguments have been checked.
#pragma once

#include "ops/decode_layers/decode_layers.h"

namespace rose::ops::cuda {

struct DecodeLayersCall {
  std::span<const DecodeLayer> layers;
  const DecodeLayersRow& row;
  const Rope& rope;
  const DecodeLayersNumbers& numbers;
  KvCache& kv;
  void* work;
  const Tensor& residual;
};

bool has_decode_layers(const Stream& stream, const DecodeLayersShape& shape, int layers);
std::size_t decode_layers_work_bytes();
void decode_layers(const Stream& stream, const DecodeLayersCall& call);

}  // namespace rose::ops::cuda
