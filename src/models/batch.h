// A step as the model sees it: flat arrays on the device, rows of all sequences one after another.
#pragma once

#include <vector>

#include "ops/attention/attention.h"
#include "tensor/tensor.h"

namespace rose {

struct Batch {
  int rows = 0;
  Tensor tokens;                          // [rows] i32, resolved
  Tensor positions;                       // [rows] i32
  Tensor logit_rows;                      // [m] i32: rows whose logits are wanted
  std::vector<Tensor> slots;              // by KV set: [rows] i32, where each row's keys and values go
  std::vector<ops::AttentionPlan> plans;  // by KV set
};

}  // namespace rose
