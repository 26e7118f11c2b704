// The CUDA side of sample.h; arguments have been checked, those in device memory by nobody: a mask that allows nothing
// yields token -1, and what lies outside its range (an adjustment's token, a slot, a mask row) is left out.
//
// Needs no scratch and writes nothing but the outputs. Ranks by logits, where the reference ranks by f32 weights, and
// adds weights as integers of 2^-44: a token differs from the reference's only where a draw or a filter's edge falls
// within rounding of the f32 weights (weights below 2^-45 of the largest are never drawn).
#pragma once

#include "device/stream.h"
#include "ops/sample/sample.h"

namespace rose::ops::cuda {

void sample(const Stream& stream, const SampleInputs& in, const SampleOutputs& out);

}  // namespace rose::ops::cuda
