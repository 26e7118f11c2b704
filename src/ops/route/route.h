// logits = x . W^T + bias;  the k largest (ties: lowest index);  weights = softmax over those k.
#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace rose::ops {

struct Routing {
  Tensor experts;      // [rows, k] i32, global expert ids, falling logit
  Tensor weights;      // [rows, k] f32, sum 1
  Tensor logits = {};  // working memory on a GPU: f32 [rows, experts]; empty on the CPU
};

void route(const Stream& stream,
           const Tensor& x,       // [rows, hidden] f32 or bf16
           const Weight& router,  // bf16 [experts, hidden] with bias
           Routing& routing);     // out

namespace ref {
void route(const Stream& stream, const Tensor& x, const Weight& router, Routing& routing);
// The selection alone. logits: [rows, experts] f32. A NaN ranks first, so that it shows in the weights; the ids are
// always valid.
void choose_experts(const Stream& stream, const Tensor& logits, Routing& routing);
}  // namespace ref

}  // namespace rose::ops
